package sqlite

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/watchers"
)

var _ driver.Watcher = (*Backend)(nil)

// watchEvery is how often Watch asks whether the file has changed. SQLite knows that from a counter
// in shared memory, so it costs some microseconds, and the processes that change it pay nothing.
const watchEvery = 20 * time.Millisecond

// Watch implements [driver.Watcher].
func (b *Backend) Watch(ctx context.Context, prefix string, changed func(name string)) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	version, err := b.dataVersion(ctx)
	if err != nil {
		return err
	}
	known, err := b.st.states(ctx, prefix)
	if err != nil {
		return err
	}
	for changed(""); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		last := version
		if version, err = b.dataVersion(ctx); err != nil {
			return err
		}
		if version == last {
			continue
		}
		before := known
		if known, err = b.st.states(ctx, prefix); err != nil {
			return err
		}
		watchers.Diff(before, known, changed)
	}
}

// dataVersion returns a number that changes when a process, this one included, has written to the
// file.
func (b *Backend) dataVersion(ctx context.Context) (version int64, err error) {
	if err := b.usable(); err != nil {
		return 0, err
	}
	err = b.st.read(ctx, func() error {
		_, err := b.st.r.get(qDataVersion, nil, &version)
		return err
	})
	return version, err
}

// states returns for each name that begins with prefix a text that changes when its record does,
// except by renewals. It can read damaged records, too.
func (st *store) states(ctx context.Context, prefix string) (map[string]string, error) {
	var all map[string]string
	err := st.read(ctx, func() error {
		all = map[string]string{}
		// No name contains the byte 0xff, which is not UTF-8.
		for _, q := range []query{qStates, qHoldStates} {
			err := st.r.each(q, []any{[]byte(prefix), []byte(prefix + "\xff")}, func(scan func(...any) error) error {
				var name []byte
				var state string
				err := scan(&name, &state)
				all[string(name)] += state + "\n"
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return all, err
}
