package driver

import "context"

// A Neighbor is a Backend whose server other programs use as well, and which can say what they keep
// under the name of a lock. Such a program does not know the lock, and the lock does not know the
// program: both may believe that they are alone. Backends need not be Neighbors.
//
// Redis, MySQL and MariaDB have locks of others under names that can be looked up. Nothing of the kind
// exists elsewhere: advisory locks of PostgreSQL have numbers, which each program makes from names in
// its own way; ZooKeeper recipes are folders whose paths each program chooses; a quorum's servers
// would each have to be asked, and locks of other quorum libraries last for seconds; and SQLite and
// memory have no other programs.
type Neighbor interface {
	// Neighbors describes, each in a few words for people, what other programs keep at the same server
	// under this name: `key "deploy" (string, expires in 9s)`. It reads no values and changes nothing.
	// It looks at a few usual places, so an empty list proves nothing. Errors: those of
	// Backend.Inspect. A user who may not look gets ErrRefused, also as fs.ErrPermission.
	Neighbors(ctx context.Context, name string) ([]string, error)
}
