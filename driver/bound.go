package driver

import "context"

// ownBound marks a context whose end no caller waits for.
type ownBound struct{ context.Context }

// OwnBound marks ctx as a time limit of package holdfast, not of a caller: a store may exceed it up
// to a limit of its own. With a client library that ignores contexts, each exchange that must
// return when its context ends costs a goroutine; an exchange with a marked context does not.
func OwnBound(ctx context.Context) context.Context { return ownBound{ctx} }

// IsOwnBound reports whether ctx is marked by OwnBound. A context derived from a marked one is not
// marked.
func IsOwnBound(ctx context.Context) bool {
	_, ok := ctx.(ownBound)
	return ok
}
