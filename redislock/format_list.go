package redislock

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// With a Format, List looks at every key of the servers: another library keeps no index of its
// names. It does so once for all pages of a listing.

const (
	scanCount = 1000             // keys in one exchange
	scanLife  = 10 * time.Second // the names that were found are good for further pages
)

// A scan finds the names that are in use.
type scan struct {
	script  *Script
	flagged *Script // for a Cluster of Redis 7, which else refuses a script that reads keys of several slots

	turn   chan struct{} // has room for the one caller that may use what follows
	prefix string
	names  []string
	at     time.Duration // when they were found
	found  bool
}

func newScan(f *Format) *scan {
	script := func(text string) *Script {
		sum := sha1.Sum([]byte(text)) // how the server addresses a script; not for security
		return &Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
	}
	return &scan{script: script(f.Scan), flagged: script("#!lua flags=no-writes,allow-cross-slot-keys\n" + f.Scan),
		turn: make(chan struct{}, 1)}
}

// scanned returns up to n names that begin with prefix and follow after.
func (b *Backend) scanned(ctx context.Context, prefix, after string, n int) ([]string, error) {
	s := b.scan
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
	if after == "" || !s.found || s.prefix != prefix || b.now()-s.at > scanLife {
		names, err := b.scanAll(ctx, prefix)
		if err != nil {
			return nil, err
		}
		s.names, s.prefix, s.at, s.found = names, prefix, b.now(), true
	}
	from, known := slices.BinarySearch(s.names, after)
	if known {
		from++
	}
	rest := s.names[from:]
	return slices.Clone(rest[:min(n, len(rest))]), nil
}

func (b *Backend) scanAll(ctx context.Context, prefix string) ([]string, error) {
	keys, err := b.everyServer(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, key := range keys {
		for cursor := "0"; ; {
			v, err := b.scanPage(ctx, key, cursor)
			if err != nil {
				return nil, err
			}
			for _, name := range v.List[1].List {
				if strings.HasPrefix(name.Text, prefix) && driver.CheckName(name.Text) == nil {
					all[name.Text] = true
				}
			}
			if cursor = v.List[0].Text; cursor == "0" {
				break
			}
		}
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func (b *Backend) scanPage(ctx context.Context, key, cursor string) (Value, error) {
	script := b.scan.script
	if b.cluster {
		script = b.scan.flagged
	}
	args := []string{cursor, strconv.Itoa(scanCount), b.prefix + "{"}
	r := b.pipeline(ctx, b.conn.RunAll, []Call{{script, []string{key}, args}})[0]
	if r.Err != nil && b.cluster && strings.Contains(r.Err.Error(), "compiling") { // before Redis 7
		r = b.pipeline(ctx, b.conn.RunAll, []Call{{b.scan.script, []string{key}, args}})[0]
	}
	if v := r.Value; r.Err == nil && (len(v.List) != 2 || v.List[0].Kind != Text) {
		return v, strange(v)
	}
	return r.Value, r.Err
}

// everyServer returns a key for each server that has keys.
func (b *Backend) everyServer(ctx context.Context) ([]string, error) {
	if !b.cluster {
		return []string{b.prefix + "{}"}, nil
	}
	asker, ok := b.asker()
	if !ok {
		return nil, fmt.Errorf("%w: this Redis client cannot ask a Cluster for its slots", driver.ErrInvalid)
	}
	var first error
	for _, a := range Ask(ctx, asker, "CLUSTER", "SLOTS") {
		if a.Err != nil {
			first = cmp.Or(first, a.Err)
			continue
		}
		slots := map[string]int64{} // the first slot of each primary
		for _, r := range a.Value.List {
			if len(r.List) < 3 || len(r.List[2].List) < 2 {
				return nil, strange(a.Value)
			}
			primary := fmt.Sprint(r.List[2].List[0].Text, " ", r.List[2].List[1].Int)
			if _, known := slots[primary]; !known {
				slots[primary] = r.List[0].Int
			}
		}
		var keys []string
		for _, slot := range slots {
			keys = append(keys, b.prefix+"{"+tagIn(int(slot))+"}")
		}
		return keys, nil
	}
	return nil, first
}

// tagIn returns a hash tag of a slot.
func tagIn(slot int) string {
	for i := 0; ; i++ {
		if tag := strconv.Itoa(i); slotOf(tag) == slot {
			return tag
		}
	}
}
