package zklock

import (
	"context"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// Credentials returns what is needed to join, and to end, the ZooKeeper session of a driver's
// session.
func Credentials(s driver.Session) (id int64, password []byte) {
	l := s.(*session).l
	return l.ID(), l.Password()
}

// Sealed returns whether the test of the servers' ACLs has a result, and whether they enforce ACLs.
func Sealed(s driver.Session) (known, holds bool) {
	state := s.(*session).l.aclTest.state.Load()
	return state == aclIgnored || state == aclEnforced, state == aclEnforced
}

// FailIn carries out a step that fails in a new folder. With a limit it writes a semaphore's limit
// there.
func FailIn(ctx context.Context, s driver.Session, dir string, limit int) error {
	l := s.(*session).l
	if limit > 0 {
		return l.createLimit(ctx, dir+"/"+leasesDir, limit)
	}
	_, err := l.multiIn(ctx, dir, zk.CheckOp("/", 12345))
	return err
}
