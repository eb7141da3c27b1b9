package sqlite

import (
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

// The contract's methods on a transaction. Package internal/rule defines their meaning; here they
// read and write only what they need.

func (t *tx) acquire(s *session, req *driver.Request) (rep driver.Reply, last uint64, err error) {
	r, err := t.row(req.Name)
	if err != nil {
		return rep, 0, err
	}
	g, err := t.find(r, req.ID)
	if err != nil {
		return rep, 0, err
	}
	if g != nil && !g.kept {
		rep.Token = uint64(g.token)
		return rep, 0, t.extend(r, g, s.expiry(t.now, req.Lease))
	}
	seq, err := t.placeOf(r, req.ID)
	if err != nil {
		return rep, 0, err
	}
	if seq != 0 {
		if err := t.renewPlace(r, seq, s.expiry(t.now, req.Lease)); err != nil {
			return rep, 0, err
		}
		rep, err = t.notYet(r, seq)
		return rep, uint64(r.token), err
	}
	switch asSet := req.Mode == driver.Permits && req.Limit == 0; {
	case asSet && !r.set() && (r.kind == driver.Unused || r.kind == driver.Semaphore):
		return rep, 0, driver.ErrNoLimit
	case !r.inUse():
		r.kind, r.limit = rule.KindOf(req.Mode), req.Limit
	case r.kind != rule.KindOf(req.Mode) || r.limit != req.Limit && !asSet:
		return rep, 0, wrongKind(r)
	}
	free := r.waiting == 0 && r.fits(req.Mode, req.N)
	if free {
		g := &grant{
			id: req.ID, session: s.id, mode: req.Mode, n: stored(req), since: t.now,
			expires: s.expiry(t.now, req.Lease).least, keep: t.now + int64(req.MinHold), info: req.Info,
		}
		err := t.grant(r, g)
		rep.Token = uint64(g.token)
		return rep, 0, err
	}
	if req.Wait {
		if seq, err = t.join(s, r, req); err != nil {
			return rep, 0, err
		}
	}
	rep, err = t.notYet(r, seq)
	return rep, uint64(r.token), err
}

func (t *tx) join(s *session, r *row, req *driver.Request) (int64, error) {
	deadline := s.expiry(t.now, req.Lease).least
	if r.waiting == 0 {
		r.due = deadline
	}
	r.due = min(r.due, deadline)
	r.seq, r.waiting, r.dirty = r.seq+1, r.waiting+1, true
	_, err := t.c.exec(qAddPlace, []byte(r.name), r.seq, req.ID, s.id, int(req.Mode), stored(req),
		t.now, deadline, int64(req.MinHold), req.Info)
	return r.seq, err
}

// expiry is when a renewed lease ends: least, or later if it lasts longer already, but no later than
// most; see rule.Entry.Renew.
type expiry struct{ least, most int64 }

func (s *session) expiry(now int64, lease time.Duration) expiry {
	return expiry{now + int64(driver.LeaseWithin(lease, s.ttl)), now + int64(s.ttl)}
}

func (u expiry) of(end int64) int64 { return max(u.least, min(end, u.most)) }

func (t *tx) renewPlace(r *row, seq int64, u expiry) error {
	if u.least < r.due { // from a request with a shorter lease
		r.due, r.dirty = u.least, true
	}
	if r.head.seq == seq {
		r.head.expires = u.of(r.head.expires)
	}
	_, err := t.c.exec(qRenewPlace, u.least, u.most, []byte(r.name), seq)
	return err
}

// notYet describes what blocks the place seq; 0 is a place behind the queue.
func (t *tx) notYet(r *row, seq int64) (rep driver.Reply, err error) {
	switch {
	case seq == 0:
		rep.Ahead = r.waiting
	case seq == r.seq: // the last place in the queue
		rep.Ahead = r.waiting - 1
	default:
		if rep.Ahead, err = t.ahead(r, seq); err != nil {
			return rep, err
		}
	}
	g := &r.x
	if g.id == "" {
		g = nil
		if r.holders > 0 {
			if g, err = t.hold(qFirstHold, []byte(r.name)); err != nil {
				return rep, err
			}
		}
	}
	if g != nil {
		h := g.describe(t.now)
		rep.Holder = &h
	}
	rep.Retry, err = retry(t.c, r, t.now)
	return rep, err
}

func (t *tx) extend(r *row, g *grant, u expiry) error {
	if g.mode == driver.Exclusive {
		r.x.expires, r.dirty = u.of(r.x.expires), true
		return nil
	}
	_, err := t.c.exec(qExpireHold, u.least, u.most, []byte(r.name), g.token)
	return err
}

// cancel removes the place before expiries, so that nothing is handed over to it.
func (t *tx) cancel(name, id string) error {
	r, err := t.unmoved(name)
	if err != nil {
		return err
	}
	if r.kind == driver.Latch {
		_, err := t.c.exec(qDropAwaitID, []byte(name), id)
		return err
	}
	seq, err := t.placeOf(r, id)
	if err != nil {
		return err
	}
	if seq != 0 {
		if _, err := t.c.exec(qDropPlace, []byte(name), seq); err != nil {
			return err
		}
		r.waiting, r.head, r.dirty = r.waiting-1, place{}, true
	}
	if err := t.advance(r); err != nil {
		return err
	}
	g, err := t.find(r, id)
	if err != nil || g == nil || g.kept {
		return err
	}
	if err := t.dropGrant(r, g); err != nil {
		return err
	}
	return t.advance(r)
}

func (t *tx) release(h driver.Hold, keep time.Duration) error {
	r, err := t.row(h.Name)
	if err != nil {
		return err
	}
	g, err := t.own(r, h.ID, h.Token)
	if err != nil {
		return err
	}
	until := max(g.keep, t.now+int64(keep))
	switch {
	case until <= t.now:
		err = t.dropGrant(r, g)
	case g.mode == driver.Exclusive:
		r.x.kept, r.x.session, r.x.keep, r.x.expires, r.dirty = true, "", until, until, true
	default:
		_, err = t.c.exec(qKeepHold, until, until, []byte(r.name), g.token)
	}
	if err != nil {
		return err
	}
	if err := t.advance(r); err != nil || until <= t.now || r.waiting == 0 {
		return err
	}
	// The first waiter knows the lease's end. Now it must ask how long the name is kept.
	p, err := readHead(t.c, r)
	if p != nil {
		t.wake(p, 0)
	}
	return err
}

// renew renews one hold and returns its change, if any.
func (t *tx) renew(s *session, h driver.Hold) (driver.Change, *queuedPlace, error) {
	u := s.expiry(t.now, h.Lease)
	if h.Token != 0 {
		alive, err := t.renewGrant(h, u)
		if err != nil || alive {
			return driver.Change{}, nil, err
		}
		return driver.Change{State: driver.Gone}, nil, nil
	}
	r, err := t.row(h.Name)
	if err != nil {
		return driver.Change{}, nil, err
	}
	g, err := t.find(r, h.ID)
	if err != nil {
		return driver.Change{}, nil, err
	}
	if g != nil && !g.kept {
		return driver.Change{State: driver.Granted, Token: uint64(g.token)}, nil, t.extend(r, g, u)
	}
	seq, err := t.placeOf(r, h.ID)
	if err != nil {
		return driver.Change{}, nil, err
	}
	if seq == 0 {
		return driver.Change{State: driver.Gone}, nil, nil
	}
	if err := t.renewPlace(r, seq, u); err != nil {
		return driver.Change{}, nil, err
	}
	return driver.Change{State: driver.Waiting}, &queuedPlace{r: r, seq: seq}, nil
}

func (t *tx) renewGrant(h driver.Hold, u expiry) (bool, error) {
	name, token := []byte(h.Name), int64(h.Token)
	if r := t.rows[h.Name]; r != nil && r.x.id != "" { // read before: the copy would overwrite the statement
		if r.x.id != h.ID || r.x.token != token || r.x.kept {
			return false, nil
		}
		r.x.expires, r.dirty = u.of(r.x.expires), true
		return true, nil
	}
	n, err := t.c.exec(qRenew, u.least, u.most, name, h.ID, token, t.now)
	if err == nil && n == 0 {
		n, err = t.c.exec(qRenewShared, u.least, u.most, name, token, h.ID, t.now)
	}
	return n > 0, err
}

func (t *tx) downgrade(h driver.Hold) error {
	r, err := t.row(h.Name)
	if err != nil {
		return err
	}
	g, err := t.own(r, h.ID, h.Token)
	if err != nil {
		return err
	}
	switch g.mode {
	case driver.Permits:
		return fmt.Errorf("%w: a semaphore's permits cannot be downgraded", driver.ErrKind)
	case driver.Exclusive:
		r.clear()
		g.mode = driver.Shared
		r.holders, r.used = r.holders+1, r.used+g.n
		if err := t.addHold(r, g); err != nil {
			return err
		}
	}
	return t.advance(r)
}

func (t *tx) reduce(h driver.Hold, n int) error {
	r, err := t.row(h.Name)
	if err != nil {
		return err
	}
	g, err := t.own(r, h.ID, h.Token)
	switch {
	case err != nil:
		return err
	case g.mode != driver.Permits:
		return wrongKind(r)
	case g.n <= n: // done before; see rule.Entry.Reduce
		return nil
	case g.keep > t.now:
		return rule.ErrMinHold
	}
	if _, err := t.c.exec(qReduceHold, n, []byte(r.name), g.token); err != nil {
		return err
	}
	r.used, r.dirty = r.used-(g.n-n), true
	return t.advance(r)
}

func (t *tx) adopt(s *session, h driver.Hold, id, info string) error {
	r, err := t.row(h.Name)
	if err != nil {
		return err
	}
	g, err := t.own(r, h.ID, h.Token)
	if err != nil {
		adopted, no := t.own(r, id, h.Token)
		if no != nil {
			return err
		}
		g = adopted
	}
	if g.id != id {
		other, err := t.find(r, id)
		if err != nil {
			return err
		}
		seq, err := t.placeOf(r, id)
		if err != nil {
			return err
		}
		if seq != 0 || other != nil && !other.kept {
			return fmt.Errorf("%w id: it stands for another request of %q", driver.ErrInvalid, r.name)
		}
	}
	until := t.now + int64(s.ttl)
	if g.mode == driver.Exclusive {
		r.x.id, r.x.session, r.x.expires, r.x.info, r.dirty = id, s.id, until, info, true
		return nil
	}
	_, err = t.c.exec(qAdoptHold, id, s.id, until, info, []byte(r.name), g.token)
	return err
}

func (t *tx) breakGrant(r *row, token int64) error {
	g := &r.x
	if g.id == "" || g.token != token {
		var err error
		if g, err = t.hold(qHoldByToken, []byte(r.name), token); err != nil {
			return err
		}
	}
	if g == nil {
		return driver.ErrGone
	}
	if err := t.dropGrant(r, g); err != nil {
		return err
	}
	return t.advance(r)
}

func (t *tx) removeLatch(r *row) error {
	switch r.kind {
	case driver.Unused:
		return driver.ErrGone
	case driver.Latch:
		return t.dropLatch(r)
	default:
		return wrongKind(r)
	}
}

func (t *tx) setLimit(r *row, limit int) error {
	switch {
	case r.kind != driver.Unused && r.kind != driver.Semaphore:
		return wrongKind(r)
	case limit == 0 && !r.set():
		return driver.ErrGone
	case limit == 0:
		r.count, r.dirty = 0, true
	default:
		r.kind, r.limit, r.count, r.dirty = driver.Semaphore, limit, 1, true
	}
	return t.advance(r)
}

func wrongKind(r *row) error {
	switch r.kind {
	case driver.Lock:
		return fmt.Errorf("%w: it is a lock", driver.ErrKind)
	case driver.Semaphore:
		return fmt.Errorf("%w: it is a semaphore of %d", driver.ErrKind, r.limit)
	default:
		return fmt.Errorf("%w: it is a latch", driver.ErrKind)
	}
}

// pollAtLeast shortens d where waiters cannot be woken.
func pollAtLeast(d time.Duration) time.Duration {
	if !host.Push {
		return min(d, 20*time.Millisecond)
	}
	return d
}
