// Package limit tells contexts by which package holdfast bounds an exchange from those of callers.
package limit

import "context"

// own is a context that nobody waits for.
type own struct{ context.Context }

// Own marks ctx as a bound that no caller has set: a store may overrun it by a limit of its own. An exchange
// that has to return when its context ends costs a goroutine with clients that disregard contexts.
func Own(ctx context.Context) context.Context { return own{ctx} }

// IsOwn reports whether ctx is marked. A context that is derived from a marked one is not.
func IsOwn(ctx context.Context) bool {
	_, ok := ctx.(own)
	return ok
}
