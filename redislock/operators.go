package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Inspect implements driver.Backend.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Record, error) {
	if err := cmp.Or(driver.CheckName(name), b.checkFormat(name, driver.Unused)); err != nil {
		return driver.Record{}, err
	}
	v, err := b.run(ctx, b.scripts.inspect, b.inspection(name))
	if err != nil {
		return driver.Record{}, err
	}
	return decodeRecord(name, v)
}

func (b *Backend) inspection(name string) *call {
	return b.keys(name, "lzmt").number(driver.MaxWaiters).end()
}

// Break implements driver.Backend.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	if token == 0 || token > maxToken {
		return driver.ErrGone
	}
	c := b.keys(name, "lzmt").str("break").end().padded(token, 16).end()
	return verdict(b.sure(ctx, cmp.Or(b.waitTimeout, defaultWait), b.scripts.change, c, requester{}))
}

// RemoveLatch implements driver.Backend.
func (b *Backend) RemoveLatch(ctx context.Context, name string) error {
	c := b.keys(name, "lzmt").str("remove").end()
	return verdict(b.sure(ctx, cmp.Or(b.waitTimeout, defaultWait), b.scripts.change, c, requester{}))
}

// SetLimit implements driver.Backend.
func (b *Backend) SetLimit(ctx context.Context, name string, limit int) error {
	if err := cmp.Or(driver.CheckLimit(limit), b.checkFormat(name, driver.Semaphore)); err != nil {
		return err
	}
	c := b.keys(name, "lzmti").str("limit").end().padded(uint64(limit), 10).end()
	return verdict(b.sure(ctx, cmp.Or(b.waitTimeout, defaultWait), b.scripts.change, c, requester{}))
}

// List implements driver.Backend. It reads the next names from the index of every shard, and
// continues while many of them are no longer in use.
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) ([]driver.Record, error) {
	return b.list(ctx, b.conn.RunAll, prefix, after, limit)
}

// errLeftOut is the result of a call whose names a listing leaves out.
var errLeftOut = errors.New("left out")

// list is List with another way to run scripts than RunAll. With a Format, only records are read by run.
func (b *Backend) list(ctx context.Context, run func(context.Context, []Call) []Result, prefix, after string,
	limit int) ([]driver.Record, error) {
	if b.err != nil {
		return nil, b.err
	}
	var records []driver.Record
	for limit > len(records) {
		// The index keeps unused names for a while, so List asks for more than the limit.
		want := min(limit-len(records)+16, 512)
		names, err := b.page(ctx, run, prefix, after, want)
		if err != nil {
			return nil, err
		}
		found, err := b.inspectAll(ctx, run, names)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			if (r.Kind != driver.Unused || r.Damaged != "") && len(records) < limit {
				records = append(records, r)
			}
		}
		if len(names) < want {
			break
		}
		after = names[len(names)-1]
	}
	return records, nil
}

// page returns the next want names of the index.
func (b *Backend) page(ctx context.Context, run func(context.Context, []Call) []Result, prefix, after string,
	want int) ([]string, error) {
	if b.format != nil {
		return b.scanned(ctx, prefix, after, want)
	}
	from, to := "["+prefix, "+"
	if after >= prefix {
		from = "(" + after
	}
	end := []byte(prefix) // the first string after all those with the prefix
	for len(end) > 0 && end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	if len(end) > 0 {
		end[len(end)-1]++
		to = "(" + string(end)
	}
	if from == "[" {
		from = "-"
	}
	calls := make([]Call, shards)
	for i := range calls {
		c := newCall().tag(b.prefix, i).str("i").end()
		c.keys = 1
		c.str(from).end().str(to).end().number(want).end().done()
		calls[i] = Call{b.scripts.names, slices.Clone(c.keyList()), slices.Clone(c.argList())}
		c.free()
	}
	var names []string
	for _, r := range b.pipeline(ctx, run, calls) {
		if r.Err != nil && r.Err != errLeftOut {
			return nil, r.Err
		}
		for _, v := range r.Value.List {
			names = append(names, v.Text)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), want)], nil
}

func (b *Backend) inspectAll(ctx context.Context, run func(context.Context, []Call) []Result, names []string) (
	[]driver.Record, error) {
	calls := make([]Call, len(names))
	for i, name := range names {
		c := b.inspection(name).done()
		calls[i] = Call{b.scripts.inspect, slices.Clone(c.keyList()), slices.Clone(c.argList())}
		c.free()
	}
	if len(calls) == 0 {
		return nil, nil
	}
	records := make([]driver.Record, len(names))
	for i, r := range b.pipeline(ctx, run, calls) {
		err := r.Err
		if err == errLeftOut { // the record looks unused
			continue
		}
		if err == nil {
			records[i], err = decodeRecord(names[i], r.Value)
		}
		switch {
		case errors.Is(err, driver.ErrDamaged):
			records[i] = driver.Record{Name: names[i], Damaged: whatIsWrong(err)}
		case err != nil:
			return nil, err
		}
	}
	return records, nil
}

// collect keeps two names of the index that came with the answer for a new name, to remove unused
// ones from the index. So the index does not grow with names that are used once.
func (s *session) collect(ctx context.Context, name string, v []Value) {
	const enough = 128
	s.mu.Lock()
	for _, v := range v {
		if v.Kind == Text && v.Text != name {
			s.stray = append(s.stray, v.Text)
		}
	}
	var stray []string
	if len(s.stray) >= enough {
		stray, s.stray = s.stray, nil
	}
	s.mu.Unlock()
	if stray != nil {
		// If this fails, other sessions will see the same names.
		_ = s.b.forget(ctx, stray)
	}
}

// forget removes those of names from the index that have no record.
func (b *Backend) forget(ctx context.Context, names []string) error {
	var sorted [shards][]string
	for _, name := range names {
		sorted[shardOf(name)] = append(sorted[shardOf(name)], name)
	}
	var calls []Call
	for i, names := range sorted {
		for names := range slices.Chunk(names, 128) {
			c := newCall().tag(b.prefix, i).str("i").end().done()
			keys := []string{c.strs[0]}
			c.free()
			for _, name := range names {
				c := b.keys(name, "l").done()
				keys = append(keys, c.strs[0])
				c.free()
			}
			calls = append(calls, Call{b.scripts.forget, keys, names})
		}
	}
	return b.runAll(ctx, calls)
}

// Neighbors implements driver.Neighbor. Other lock libraries mostly use the name itself as the key,
// or put "lock:" before it.
func (b *Backend) Neighbors(ctx context.Context, name string) ([]string, error) {
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	if b.err != nil {
		return nil, b.err
	}
	asker, ok := b.asker()
	if !ok {
		return nil, nil
	}
	keys := []string{name, "lock:" + name}
	if b.format != nil {
		keys = keys[1:] // the first is shared
	}
	var found []string
	for _, key := range keys {
		if strings.HasPrefix(key, b.prefix+"{") { // the key of another lock of ours
			continue
		}
		kind, err := askAbout(ctx, asker, "TYPE", key)
		if err != nil {
			return found, err
		}
		if kind.Text == "none" || kind.Text == "" {
			continue
		}
		left, err := askAbout(ctx, asker, "PTTL", key)
		if err != nil {
			return found, err
		}
		expiry := "never expires"
		if left.Int >= 0 {
			d := time.Duration(left.Int) * time.Millisecond
			expiry = fmt.Sprintf("expires in %v", d.Round(time.Second))
		}
		found = append(found, fmt.Sprintf("key %q (%s, %s)", key, kind.Text, expiry))
	}
	return found, nil
}

// askAbout asks about a key. In a Cluster the servers without the key answer with an error.
func askAbout(ctx context.Context, asker Asker, command, key string) (Value, error) {
	var first error
	for _, a := range Ask(ctx, asker, command, key) {
		r := (*Refusal)(nil)
		switch {
		case a.Err == nil:
			return a.Value, nil
		case errors.As(a.Err, &r) && (r.Code == "MOVED" || r.Code == "ASK"):
		case first == nil:
			first = a.Err
		}
	}
	return Value{}, first
}
