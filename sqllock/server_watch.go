package sqllock

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/watchers"
)

var _ driver.Watcher = (*Server)(nil)

// Watch asks the server for the names whose rows differ, with one statement every watchEvery. After a
// statement that takes long it pauses watchShare times as long, at most watchMost. Notifications
// would make every release dearer, and commits of PostgreSQL that notify wait for each other.
const (
	watchEvery = 200 * time.Millisecond
	watchMost  = 2 * time.Second
	watchShare = 50
)

// Watch implements driver.Watcher.
func (b *Server) Watch(ctx context.Context, prefix string, changed func(name string)) error {
	known, pause, err := b.states(ctx, prefix)
	if err != nil {
		return err
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for changed(""); ; timer.Reset(pause) {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		before := known
		if known, pause, err = b.states(ctx, prefix); err != nil {
			return err
		}
		watchers.Diff(before, known, changed)
	}
}

// states returns for each name that begins with prefix a text that changes when its record does,
// except by renewals, and how long to pause then. It can read damaged rows, too.
func (b *Server) states(ctx context.Context, prefix string) (all map[string]string, pause time.Duration, err error) {
	if err := b.ready(ctx); err != nil {
		return nil, 0, err
	}
	where, args := "name >= ?", []any{[]byte(prefix)}
	if end := pastPrefix(prefix); end != nil {
		where, args = where+" AND name < ?", append(args, end)
	}
	text := b.text("SELECT name, kind, lim, counter, token, hid, kept, waiting, {timeless} FROM hf_lock WHERE " +
		where)
	ctx, cancel := context.WithTimeout(ctx, answerLimit) // the caller's limit may be far away
	defer cancel()
	var began time.Time
	err = b.read(ctx, func(ctx context.Context, l sqlConn) error {
		all, began = map[string]string{}, time.Now()
		return b.each(ctx, b.on(l).Prepared(), text, args, func(row *sql.Rows) error {
			var columns [9]sql.NullString
			var dest [9]any
			for i := range columns {
				dest[i] = &columns[i]
			}
			if err := row.Scan(dest[:]...); err != nil {
				return err
			}
			var state strings.Builder
			for _, c := range columns[1:] {
				state.WriteString(c.String + " ")
			}
			all[columns[0].String] = state.String()
			return nil
		})
	})
	return all, min(max(watchEvery, watchShare*time.Since(began)), watchMost), err
}
