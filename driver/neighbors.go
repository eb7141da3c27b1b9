package driver

import "context"

// A Neighbor is a Backend whose server other programs use as well, and which can say what they keep
// under the name of a lock. Such a program does not know the lock, and the lock does not know the
// program: both may believe that they are alone. Backends need not be Neighbors.
type Neighbor interface {
	// Neighbors describes, each in a few words for people, what other programs keep at the same server
	// under this name: `key "deploy" (string, expires in 9s)`. It reads no values and changes nothing.
	// It looks at a few usual places, so an empty list proves nothing. Errors: those of
	// Backend.Inspect. A user who may not look gets ErrRefused, also as fs.ErrPermission.
	Neighbors(ctx context.Context, name string) ([]string, error)
}
