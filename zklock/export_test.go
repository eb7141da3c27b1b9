package zklock

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// Credentials returns what is needed to join, and to end, the ZooKeeper session of a driver's
// session.
func Credentials(s driver.Session) (id int64, password []byte) {
	l := s.(*session).l
	return l.ID(), l.Password()
}

// Patient makes b's sessions that hold nothing last for a minute: a slow server ends none of their calls.
func Patient(b *Backend) { b.idle = time.Minute }

// Sealed returns whether the test of the servers' ACLs has a result, and whether they enforce ACLs.
func Sealed(s driver.Session) (known, holds bool) {
	state := s.(*session).l.aclTest.state.Load()
	return state == aclIgnored || state == aclEnforced, state == aclEnforced
}

// TryACLs begins the test of the servers' ACLs in a folder.
func TryACLs(ctx context.Context, s driver.Session, dir string) { s.(*session).l.testACLs(ctx, dir) }

// SweepHistories removes histories whose last entry is older than life.
func SweepHistories(ctx context.Context, b *Backend, life time.Duration) error {
	return b.withAnyLink(ctx, func(l *link) error { l.sweepHistories(ctx, life); return nil })
}

// OperatorOpen reports whether b has a session for operators.
func OperatorOpen(b *Backend) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ops != nil
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

// LateLimit and LateLatch return the last step of SetLimit or SetCount for a name that is unused now.
func LateLimit(ctx context.Context, b *Backend, name string, limit int) (step func() error, err error) {
	l, err := b.operator(ctx)
	if err != nil {
		return nil, err
	}
	dir, pending := b.folder(name), b.folder(name)+"/"+pendingNode+"late"
	if _, err := l.multiIn(ctx, dir, zk.CreateOp(pending, nil, zk.Ephemeral, b.acl)); err != nil {
		return nil, err
	}
	ops, err := l.limitOps(ctx, dir, &driver.Record{}, limit)
	ops = append(ops, zk.DeleteOp(pending, zk.AnyVersion))
	return func() error { _, err := l.Multi(ctx, ops...); return err }, err
}

func LateLatch(ctx context.Context, d driver.Session, name string) (step func() error, err error) {
	s := d.(*session)
	dir, pending := s.b.folder(name), s.b.folder(name)+"/"+pendingNode+"late"
	_, err = s.announce(ctx, dir, pending)
	return func() error { _, err := s.l.Multi(ctx, s.latchOps(dir, pending, "late", 1)...); return err }, err
}

// LateRemoval returns the last step of SetLimit that removes the limit of a name as it is now.
func LateRemoval(ctx context.Context, b *Backend, name string) (step func() error, err error) {
	l, err := b.operator(ctx)
	if err != nil {
		return nil, err
	}
	r, err := l.inspect(ctx, name)
	if err != nil {
		return nil, err
	}
	ops, err := l.limitOps(ctx, b.folder(name), &r, 0)
	return func() error { _, err := l.Multi(ctx, ops...); return err }, err
}
