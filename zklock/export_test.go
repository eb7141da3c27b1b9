package zklock

import (
	"context"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// Credentials are what allows to join, and to end, the ZooKeeper session of a driver's session.
func Credentials(s driver.Session) (id int64, password []byte) {
	l := s.(*session).l
	return l.ID(), l.Password()
}

// Sealed reports whether it is known if the servers enforce ACLs, and if so whether they do.
func Sealed(s driver.Session) (known, holds bool) {
	state := s.(*session).l.seal.state.Load()
	return state == sealFails || state == sealHolds, state == sealHolds
}

// FailIn does a step in a new folder that fails, or says a semaphore's limit there.
func FailIn(ctx context.Context, s driver.Session, dir string, limit int) error {
	l := s.(*session).l
	if limit > 0 {
		return l.sayLimit(ctx, dir+"/"+leasesDir, limit)
	}
	_, err := l.multiIn(ctx, dir, zk.CheckOp("/", 12345))
	return err
}
