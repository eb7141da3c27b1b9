package driver

import "context"

// ownBound is a context whose end nobody waits for.
type ownBound struct{ context.Context }

// OwnBound marks ctx as a bound that package holdfast has set, and no caller: a store may
// overrun it by a limit of its own. A client library that disregards contexts costs a
// goroutine for each exchange that must return when its context ends; a marked one need not.
func OwnBound(ctx context.Context) context.Context { return ownBound{ctx} }

// IsOwnBound reports whether ctx is marked by OwnBound. A context that is derived from a
// marked one is not.
func IsOwnBound(ctx context.Context) bool {
	_, ok := ctx.(ownBound)
	return ok
}
