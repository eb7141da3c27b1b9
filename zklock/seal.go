package zklock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/zk"
)

// A holder that releases an exclusive lock changes its node's data and deletes the node, in one
// step. So the next waiter, which watches the node, gets an event for the change. All other
// clients, and the servers when a session ends, delete nodes without a change. A change therefore
// means: this was the holder, nobody else is in front, the lock is yours. The waiter need not list
// the folder. A deletion without a change may be that of a waiter, so the waiter lists the folder.
//
// This is correct as long as nobody else changes the node's data, as Curator's Revoker would.
// Therefore a contender's node is sealed: its ACL lets only its own session change it, by an
// identity that the session invents. Servers can be configured to ignore ACLs. The session tests
// this before it trusts a change.

const sealUser = "holdfast-session"

// aclTest is the result of the test whether the servers enforce ACLs.
type aclTest struct{ state atomic.Int32 }

const (
	aclUnknown int32 = iota
	aclTesting
	aclIgnored
	aclEnforced
)

// testACLs finds out, once, whether the servers enforce ACLs. In one step it creates a node in dir
// that nobody may change, and changes it. The step must fail as a whole.
func (l *link) testACLs(ctx context.Context, dir string) {
	if !l.aclTest.state.CompareAndSwap(aclUnknown, aclTesting) {
		return
	}
	path := dir + "/" + sealNode
	done, err := l.Multi(ctx,
		zk.CreateOp(path, nil, zk.Ephemeral, l.b.readers),
		zk.SetOp(path, nil, zk.AnyVersion),
		zk.DeleteOp(path, zk.AnyVersion))
	switch {
	case len(done) == 3 && errors.Is(done[1].Err, zk.ErrNoAuth):
		l.aclTest.state.Store(aclEnforced)
	case errors.Is(err, zk.ErrConnectionLoss) || errors.Is(err, zk.ErrNotSent) || errors.Is(err, zk.ErrNoNode):
		l.aclTest.state.Store(aclUnknown) // the next call tries again
	default:
		l.aclTest.state.Store(aclIgnored)
	}
}

// testACLsSoon starts the test whether the servers enforce ACLs, unless it was started before.
func (s *session) testACLsSoon(dir string) {
	if s.l.aclTest.state.Load() != aclUnknown {
		return
	}
	s.spawn(func() {
		ctx, cancel := s.exchangeCtx()
		defer cancel()
		s.l.testACLs(ctx, dir)
	})
}

func (l *link) aclsEnforced() bool { return l.aclTest.state.Load() == aclEnforced }

// announces reports whether e's release changes the node's data, for the next waiter. It does not
// if nobody waited a moment ago: the change costs the servers more than a deletion alone.
func (e *entry) announces() bool {
	const moment = 2 * time.Millisecond
	return e.state == held && e.role == exclusive && !e.permits() && !e.deleteOnly &&
		(e.aloneAt.IsZero() || time.Since(e.aloneAt) > moment)
}

// announcesRelease reports whether the release of n, whose data is given, changes the data: n is an
// exclusive contender that holdfast created.
func (n node) announcesRelease(data []byte) bool {
	if n.role != exclusive || n.kept() {
		return false
	}
	r := parseRecord(data)
	return r.id != "" && n.uuid == uuidOf(r.id)
}
