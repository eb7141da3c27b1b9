package holdfast

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Election chooses one leader among any number of candidates, who succeed each other in
// order of arrival. The leader's term is the fencing token: larger for every later leader.
// It is a value without state and safe for concurrent use.
type Election struct{ lock }

// Election returns the election of that name; nothing is asked of the store. Names and
// options are as for Mutex; see Candidate.
func (c *Client) Election(name string, opts ...Option) *Election {
	return &Election{c.lock(name, driver.Exclusive, 1, 0, opts)}
}

// The labels in which Candidate is kept.
const (
	labelCandidate = "candidate"
	labelAddress   = "address"
)

// Candidate says who is campaigning, and where the leader can be reached; Leader shows both.
// Either may be empty.
func Candidate(name, address string) Option {
	return func(o *options) {
		if name != "" {
			Label(labelCandidate, name)(o)
		}
		if address != "" {
			Label(labelAddress, address)(o)
		}
	}
}

// Campaign waits until it leads. The lease is the leadership: its Context ends with it,
// its Token is the term, Release resigns. It is as Mutex.Lock otherwise.
func (e *Election) Campaign(ctx context.Context) (*Lease, error) {
	return e.part().take(ctx, "campaign", true)
}

// Lead campaigns, and runs f as leader; the context that f gets ends when the leadership is
// lost. When f has returned, and not before, Lead resigns: a leader that returns from f has
// stopped before anyone else starts. It is as Mutex.Do otherwise; call it again to
// campaign again.
func (e *Election) Lead(ctx context.Context, f func(context.Context) error) error {
	return e.part().do(ctx, "campaign", f)
}

func (e *Election) part() *lock {
	if e == nil {
		return nil
	}
	return &e.lock
}

// Leader is who leads.
type Leader struct {
	Name    string // as Candidate said; else program, user, host and pid
	Address string // as Candidate said
	Term    uint64 // the fencing token of the leadership
	Holder         // all that is known
}

// Leader returns who leads now, or nil if nobody does: one exchange with the store.
// Errors: ErrKind, and those of Client.Inspect.
func (e *Election) Leader(ctx context.Context) (*Leader, error) {
	if err := e.part().made("leader"); err != nil {
		return nil, err
	}
	r, err := e.c.Inspect(ctx, e.req.Name)
	if err != nil {
		return nil, err
	}
	if r.Kind == "semaphore" || r.Kind == "latch" {
		return nil, &Error{Op: "leader", Name: e.req.Name, Err: fmt.Errorf("%w: it is a %s", ErrKind, r.Kind)}
	}
	if len(r.Holders) == 0 || r.Holders[0].Kept || r.Holders[0].Shared {
		return nil, nil
	}
	h := r.Holders[0]
	l := &Leader{Name: h.Labels[labelCandidate], Address: h.Labels[labelAddress], Term: h.Token, Holder: h}
	if l.Name == "" {
		l.Name = h.who()
	}
	return l, nil
}

// Observe yields who leads, now and whenever that has changed, until ctx ends; nil for
// nobody. It asks the store every third of the TTL, so a change is seen that late, and one
// that lasts less may not be seen; Terms tell. An error of the store is yielded, once for
// each outage, and does not end it.
func (e *Election) Observe(ctx context.Context) iter.Seq2[*Leader, error] {
	return func(yield func(*Leader, error) bool) {
		if err := e.part().made("observe"); err != nil {
			yield(nil, err)
			return
		}
		first, out := true, false
		term := uint64(0)
		for {
			l, err := e.Leader(ctx)
			now := uint64(0)
			if l != nil {
				now = l.Term
			}
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && !out:
				if out = true; !yield(nil, err) {
					return
				}
			case err == nil && (first || now != term):
				if !yield(l, nil) {
					return
				}
				first, term = false, now
			}
			if err == nil {
				out = false
			}
			if !sleep(ctx, e.c.TTL()/3) {
				return
			}
		}
	}
}

// TickHold is how long [Client.OnlyOne] keeps a name for ticks of that length: nine tenths of a
// tick. Clocks differ, and schedules fire early; what was kept for all of it would be in the way of the
// next start.
func TickHold(every time.Duration) time.Duration { return every - every/10 }

// OnlyOne runs f if nobody has run it in this tick: the job that a schedule starts on many
// machines at once, and that one of them is to do. It takes the mutex of that name without
// waiting and keeps it for nine tenths of a tick (see [MinHold]), also past the end of f and of the
// process. A tick begins with its first run, so two runs are never closer than that. ran tells
// whether f was run; if another has done it or is at it, that is no error. f gets the context of
// the lease, as in Mutex.Do. The machines' clocks and schedules may differ by a tenth of a tick.
func (c *Client) OnlyOne(ctx context.Context, name string, every time.Duration, f func(context.Context) error, opts ...Option) (ran bool, err error) {
	if every <= 0 {
		return false, &Error{Op: "run once per tick", Name: name, Err: fmt.Errorf("%w tick of %v: it must be positive", ErrInvalid, every)}
	}
	opts = append(opts, MinHold(TickHold(every)))
	l, err := c.Mutex(name, opts...).TryLock(ctx)
	if errors.Is(err, ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, l.do(ctx, f)
}
