package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/watchers"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

var _ driver.Watcher = (*Backend)(nil)

// Watch implements driver.Watcher with a persistent recursive watch on the root, in a session of
// its own. Servers before 3.6 have none. The watch is the connected server's, and ends with the
// connection.
func (b *Backend) Watch(ctx context.Context, prefix string, changed func(name string)) error {
	call, stop := watchers.Until(changed)
	defer stop()
	limited, cancel := context.WithTimeout(ctx, b.idle)
	defer cancel()
	l, err := b.dial(limited, b.idle)
	if err != nil {
		return err
	}
	defer closeUnused(l)
	root := b.root
	if root == "" {
		root = "/"
	}
	gone, err := l.WatchTree(limited, root, func(path string) {
		if name, ok := b.nameAt(path); ok && strings.HasPrefix(name, prefix) {
			call(name)
		}
	})
	if errors.Is(err, zk.ErrUnimplemented) {
		return fmt.Errorf("%w: the servers are older than 3.6 and have no recursive watches", driver.ErrInvalid)
	}
	if err != nil {
		return explainOps(err)
	}
	call("")
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-gone:
		return fmt.Errorf("%w: the connection with the watch was lost", driver.ErrUnavailable)
	}
}

// nameAt returns the name whose record a node belongs to. Nodes that exist only for a moment belong
// to none: Inspect creates some.
func (b *Backend) nameAt(path string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(path, b.root+"/")
	if !ok || momentary(base(path)) {
		return "", false
	}
	if b.mode == Single {
		return b.unflat(rest)
	}
	var levels []string
	for node := range strings.SplitSeq(rest, "/") {
		level, ok := decodeLevel(node, len(levels) == 0, b.root == "")
		if !ok {
			break
		}
		levels = append(levels, level)
	}
	return strings.Join(levels, "/"), len(levels) > 0
}
