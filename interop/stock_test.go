package interop

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// stockLibrary is the lock of the Go client for ZooKeeper that most programs use. It has mutexes
// only, and cannot give up.
type stockLibrary struct{ conn *zk.Conn }

func (s *stockLibrary) connect(server string, session time.Duration) error {
	conn, _, err := zk.Connect([]string{server}, session, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	s.conn = conn
	return err
}

func (s *stockLibrary) take(a request, d time.Duration) (lease, error) {
	if a.kind != "mutex" || d != forever {
		return nil, fmt.Errorf("zk.Lock cannot take a %s within %v", a.kind, d)
	}
	l := zk.NewLock(s.conn, a.path, zk.WorldACL(zk.PermAll))
	return stockLease{l}, l.Lock()
}

func (s *stockLibrary) close() error {
	s.conn.Close()
	return nil
}

type stockLease struct{ lock *zk.Lock }

func (l stockLease) Release() error   { return l.lock.Unlock() }
func (l stockLease) Downgrade() error { return errors.New("zk.Lock has no read mode") }
func (l stockLease) Err() error       { return errors.New("zk.Lock cannot report this") }
