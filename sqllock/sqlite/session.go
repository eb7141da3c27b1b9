package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/waiters"
)

// session is one client's session in the file.
type session struct {
	b       *Backend
	st      *store
	id      string
	ttl     time.Duration
	waiters *waiters.Table

	mu       sync.Mutex
	endpoint *endpoint // shows other processes that this one is alive, and receives notifications
	given    bool      // Presence has returned the file of endpoint
	probing  bool
	closed   bool

	lost     chan struct{}
	lostOnce sync.Once
	ctx      context.Context // ends with the session; for its goroutines
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

func openSession(ctx context.Context, b *Backend, cfg driver.SessionConfig) (*session, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	s := &session{
		b: b, st: b.st, id: cfg.ID, ttl: cfg.TTL, waiters: waiters.NewTable(), lost: make(chan struct{}),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	var err error
	if s.endpoint, err = s.st.newEndpoint(); err != nil {
		return nil, fmt.Errorf("opening a session: %w", fault(err))
	}
	err = s.st.write(ctx, func(t *tx) error {
		n, err := t.c.exec(qAddSession, s.id, s.st.addressOf(s.endpoint.bellPath), s.st.addressOf(s.endpoint.filePath),
			s.inodeOf(s.endpoint), t.now, cfg.Info)
		if err == nil && n == 0 {
			err = fmt.Errorf("%w session id: %s is in use", driver.ErrInvalid, s.id)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening a session: %w", errors.Join(err, s.endpoint.close()))
	}
	s.st.mu.Lock()
	s.st.sessions[s.id] = s
	s.st.mu.Unlock()
	s.listen(s.endpoint)
	s.st.upkeep.sweepSoon()
	return s, nil
}

func (s *session) TTL() time.Duration { return s.ttl }

func (s *session) Lost() <-chan struct{} { return s.lost }

func (s *session) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("session: %w", driver.ErrClosed)
	}
	select {
	case <-s.lost:
		if s.st.over.Load() {
			return errReplaced
		}
		return errVoided
	default:
		return nil
	}
}

var errVoided = fmt.Errorf("the store has ended this session: %w", driver.ErrClosed)

// stands checks in a transaction that the session has not been ended. A grant of an ended session
// would outlive it, and no process would end that grant.
func (s *session) stands(t *tx) error {
	var one int
	ok, err := t.c.get(qStands, []any{s.id}, &one)
	if err == nil && !ok {
		return s.void()
	}
	return err
}

func (s *session) void() error {
	s.lostOnce.Do(func() { close(s.lost) })
	return errVoided
}

var errCancelled = fmt.Errorf("%w: the request was cancelled", driver.ErrUnavailable)

func (s *session) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	if err := errors.Join(s.usable(), req.Check(), req.CheckTokens(s.b.Kinds())); err != nil {
		return driver.Reply{}, err
	}
	w := s.waiters.Begin(req.ID, req.Name, 0)
	rep, last, err := s.acquire(ctx, req, w)
	if err != nil || rep.Token != 0 || !req.Wait {
		s.waiters.End(req.ID, w)
		return rep, err
	}
	rep.Wake = s.waiters.Park(w, last)
	s.probe()
	return rep, nil
}

func (s *session) acquire(ctx context.Context, req *driver.Request, w *waiters.Waiter) (
	rep driver.Reply, last uint64, err error) {
	take := func() (bool, error) {
		if req.Mode != driver.Exclusive || s.waiters.Cancelled(w) {
			return false, nil
		}
		now := s.st.env.now()
		return s.st.w.get(qTake, []any{
			[]byte(req.Name), req.ID, now, now + int64(driver.LeaseWithin(req.Lease, s.ttl)), now + int64(req.MinHold), req.Info,
			s.st.env.wall(), s.id, req.Block(),
		}, &rep.Token)
	}
	err = s.st.writeOr(ctx, req.Name, take, func(t *tx) error {
		if s.waiters.Cancelled(w) {
			return errCancelled
		}
		err := s.stands(t)
		if err == nil {
			rep, last, err = t.acquire(s, req)
		}
		return err
	})
	if err != nil {
		rep = driver.Reply{}
	}
	if rep.Token != 0 {
		s.st.upkeep.took()
	}
	return rep, last, err
}

func (s *session) Cancel(ctx context.Context, name, id string) error {
	s.waiters.Cancel(id)
	if err := errors.Join(s.usable(), driver.CheckName(name)); err != nil {
		return err
	}
	return s.st.write(ctx, func(t *tx) error { return t.cancel(name, id) })
}

func (s *session) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	if err := errors.Join(s.usable(), driver.CheckName(h.Name)); err != nil {
		return err
	}
	if keep < 0 || keep > driver.MaxHold {
		return fmt.Errorf("%w time to keep the name, %v: allowed are 0 to %v", driver.ErrInvalid, keep, driver.MaxHold)
	}
	free := func() (bool, error) {
		if keep > 0 {
			return false, nil
		}
		now := s.st.env.now()
		n, err := s.st.w.exec(qRelease, []byte(h.Name), h.ID, int64(h.Token), now, now)
		return n > 0, err
	}
	err := s.st.writeOr(ctx, h.Name, free, func(t *tx) error { return t.release(h, keep) })
	if err == nil || driver.IsOver(err) {
		s.waiters.Cancel(h.ID) // if it waited, ignore later notifications
	}
	return err
}

// renewBatch bounds how long one transaction of Renew blocks others.
const renewBatch = 256

func (s *session) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if err := s.repair(ctx); err != nil {
		return nil, err
	}
	var reported []driver.Change
	for first := 0; first < len(holds); first += renewBatch {
		batch := holds[first:min(first+renewBatch, len(holds))]
		changes, err := s.renew(ctx, batch)
		if err != nil {
			if first == 0 {
				return nil, err
			}
			for i := first; i < len(holds); i++ {
				reported = append(reported, driver.Change{Index: i, State: driver.Unknown})
			}
			return reported, nil
		}
		for _, ch := range changes {
			ch.Index += first
			if h := holds[ch.Index]; ch.State == driver.Gone && h.Token != 0 {
				s.waiters.Cancel(h.ID)
			}
			reported = append(reported, ch)
		}
	}
	return reported, nil
}

// renew is Renew of one batch. Damaged records are reported as Gone, and the others are renewed
// again without them, since the failed transaction was rolled back.
func (s *session) renew(ctx context.Context, holds []driver.Hold) (changes []driver.Change, err error) {
	_, err = skipDamaged(func(damaged map[string]bool) (at string, err error) {
		changes, at, err = s.renewBut(ctx, holds, damaged)
		return at, err
	})
	return changes, err
}

// renewBut is renew without damaged names. If it finds another damaged one, it returns that.
func (s *session) renewBut(ctx context.Context, holds []driver.Hold, damaged map[string]bool) (
	changes []driver.Change, last string, err error) {
	err = s.st.write(ctx, func(t *tx) error {
		changes = changes[:0]
		if err := s.stands(t); err != nil {
			return err
		}
		var found []queuedPlace
		for i, h := range holds {
			if damaged[h.Name] {
				changes = append(changes, driver.Change{Index: i, State: driver.Gone})
				continue
			}
			last = h.Name
			ch, at, err := t.renew(s, h)
			if err != nil {
				return err
			}
			if ch.State == 0 {
				continue
			}
			ch.Index = i
			changes = append(changes, ch)
			if at != nil {
				at.change = len(changes) - 1
				found = append(found, *at)
			}
		}
		return t.positions(found, changes, &last)
	})
	return changes, last, err
}

func (s *session) Downgrade(ctx context.Context, h driver.Hold) error {
	if err := errors.Join(s.usable(), driver.CheckName(h.Name)); err != nil {
		return err
	}
	return s.st.write(ctx, func(t *tx) error { return t.downgrade(h) })
}

func (s *session) Reduce(ctx context.Context, h driver.Hold, n int) error {
	if err := errors.Join(s.usable(), driver.CheckName(h.Name), driver.CheckRemaining(n)); err != nil {
		return err
	}
	return s.st.write(ctx, func(t *tx) error { return t.reduce(h, n) })
}

func (s *session) Adopt(ctx context.Context, h driver.Hold, id, info string) error {
	if err := errors.Join(s.usable(), driver.CheckName(h.Name), driver.CheckID(id)); err != nil {
		return err
	}
	return s.st.write(ctx, func(t *tx) error {
		return errors.Join(s.stands(t), t.adopt(s, h, id, info))
	})
}
