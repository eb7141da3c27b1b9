package zklock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// A holder that releases an exclusive lock changes its node's data and deletes the node, in one
// step, so that who watches it is told of the change. All others, and the servers when a session
// ends, delete nodes and do not change them. So a change says: this was the holder, nobody
// is left in front, the lock is yours, and the next in line need not list the folder again; while a
// deletion alone may be that of a waiter, and is looked into.
//
// That is sound as long as nobody else changes the node's data, as Curator's Revoker would.
// Therefore a contender's node is sealed: its ACL lets only its own session change it, by
// an identity that the session makes up. Whether the servers enforce ACLs (they can be told not
// to) is tried out before a change is believed.

const sealUser = "holdfast-session"

// seal is whether the servers enforce ACLs.
type seal struct{ state atomic.Int32 }

const (
	sealUnknown int32 = iota
	sealTrying
	sealFails
	sealHolds
)

// tryOut finds out, once, whether the servers enforce ACLs: by a step that makes a node
// which may not be changed and changes it, in dir, and so has to fail as a whole.
func (l *link) tryOut(ctx context.Context, dir string) {
	if !l.seal.state.CompareAndSwap(sealUnknown, sealTrying) {
		return
	}
	path := dir + "/" + sealNode
	done, err := l.Multi(ctx,
		zk.CreateOp(path, nil, zk.Ephemeral, l.b.readers),
		zk.SetOp(path, nil, zk.AnyVersion),
		zk.DeleteOp(path, zk.AnyVersion))
	switch {
	case len(done) == 3 && errors.Is(done[1].Err, zk.ErrNoAuth):
		l.seal.state.Store(sealHolds)
	case errors.Is(err, zk.ErrConnectionLoss) || errors.Is(err, zk.ErrNoNode):
		l.seal.state.Store(sealUnknown) // the next one tries
	default:
		l.seal.state.Store(sealFails)
	}
}

// sealed sees to it that it is known whether the servers enforce ACLs, soon.
func (s *session) sealed(dir string) {
	if s.l.seal.state.Load() != sealUnknown {
		return
	}
	s.spawn(func() {
		ctx, cancel := s.soon()
		defer cancel()
		s.l.tryOut(ctx, dir)
	})
}

func (l *link) isSealed() bool { return l.seal.state.Load() == sealHolds }

// tells reports whether e's release is to tell who is next: not if nobody was behind it a
// moment ago, as that costs the servers more than a deletion alone.
func (e *entry) tells() bool {
	const moment = 2 * time.Millisecond
	return e.state == held && e.role == exclusive && !e.permits() && !e.mute && (e.alone.IsZero() || time.Since(e.alone) > moment)
}

// tells reports whether the end of n, whose data is given, is told by a change of it: n is
// a contender of ours that wants the lock for itself.
func (n node) tells(data []byte) bool {
	if n.role != exclusive || n.kept() {
		return false
	}
	r := parseRecord(data)
	return r.id != "" && n.uuid == uuidOf(r.id)
}
