package redislock

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/watchers"
)

// Tracker is a Conn that can report changed keys, with client tracking in broadcast mode (Redis 6).
// Scripts do nothing for that, and servers without a tracking client remember no keys.
type Tracker interface {
	// Track calls changed with "" as soon as no further change can escape it. Then it calls changed
	// with every changed key that begins with prefix; "" stands for any key. It returns when ctx ends,
	// or when it can learn of no more changes. The error is final (driver.IsFinal) if the servers, the user's permissions
	// or the client do not allow tracking. changed must not block.
	Track(ctx context.Context, prefix string, changed func(key string)) error
}

var _ driver.Watcher = (*Backend)(nil)

// Watch implements driver.Watcher, if the Conn is a Tracker.
func (b *Backend) Watch(ctx context.Context, prefix string, changed func(name string)) error {
	t, ok := b.conn.Conn.(Tracker)
	if !ok {
		return fmt.Errorf("%w: this Redis client cannot track keys", driver.ErrInvalid)
	}
	if b.err != nil {
		return b.err
	}
	if b.format != nil {
		return fmt.Errorf("%w: what %s changes cannot be watched", driver.ErrInvalid, b.format.Name)
	}
	call, stop := watchers.Until(changed)
	defer stop()
	// The prefix is that of all keys: each further one would cost the server time at every write.
	return t.Track(ctx, b.prefix+"{", func(key string) {
		if name, ok := b.nameOf(key); key == "" || ok && strings.HasPrefix(name, prefix) {
			call(name)
		}
	})
}

// nameOf returns the name whose state or members a key has. All other keys change with one of
// these, or not at all.
func (b *Backend) nameOf(key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, b.prefix+"{")
	const head = len("3f}:l:")
	if !ok || len(rest) <= head || rest[2:4] != "}:" || rest[4] != 'l' && rest[4] != 'm' || rest[5] != ':' {
		return "", false
	}
	return rest[head:], true
}
