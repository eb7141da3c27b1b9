package driver

import (
	"context"
	"fmt"
)

// A Watcher is a Backend that can say when to read records again. Backends need not be Watchers:
// package holdfast asks others from time to time.
type Watcher interface {
	// Watch calls changed when the record of a name that begins with prefix may have changed: with
	// the name, or with "" if it may be any of them. It does so soon after every change that an
	// exchange makes, except renewals and changes that come with time alone (an expired lease).
	// Watch first calls changed with "" as soon as it would notice the next change, and again
	// whenever it may have missed some.
	//
	// Such a call is an unproven hint (R16): it may be late, repeated or false, and it may be about
	// another name. The caller reads the record from the store and believes nothing else (R13).
	// Holders and waiters pay nothing for a store without watchers.
	//
	// changed may be called concurrently, and does not block. Watch returns when ctx has ended, or
	// after the client library's own time limit: package holdfast does not wait for it. It calls
	// nothing afterwards. If it returns before, it can report nothing more, for example because a
	// connection was lost. The caller may call it again, unless the error is final (IsFinal): the
	// store cannot report changes, or refuses to.
	Watch(ctx context.Context, prefix string, changed func(name string)) error
}

// Watch is b.Watch, or ErrInvalid if b is no Watcher. A Backend that contains another one calls it.
func Watch(ctx context.Context, b Backend, prefix string, changed func(name string)) error {
	w, ok := b.(Watcher)
	if !ok {
		return fmt.Errorf("%w: %s reports no changes", ErrInvalid, b.Name())
	}
	return w.Watch(ctx, prefix, changed)
}
