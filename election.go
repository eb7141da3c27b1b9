package holdfast

import (
	"context"
	"fmt"
	"iter"

	"github.com/holdfast-lock/holdfast/driver"
)

// Election chooses one leader among any number of candidates, who succeed each other in order of
// arrival. The leader's term is the fencing token: larger for every later leader. It is a value
// without state and safe for concurrent use.
type Election struct{ lock }

// Election returns the election of that name, without an exchange with the store. Names and options
// are as for Mutex; see Candidate.
func (c *Client) Election(name string, opts ...Option) *Election {
	e := &Election{c.lock(name, driver.Exclusive, 1, 0, opts)}
	e.opt.notSticky("an election")
	e.opt.fair = true // the term that the store shows is the leader's
	return e
}

// The labels that Candidate sets.
const (
	labelCandidate = "candidate"
	labelAddress   = "address"
)

// Candidate names the candidate, and the address at which it can be reached as leader; Leader shows
// both. Either may be empty.
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

// Campaign waits until it leads. The lease is the leadership: its Context ends with it, its Token
// is the term, Release resigns. Otherwise it is as Mutex.Lock.
func (e *Election) Campaign(ctx context.Context) (*Lease, error) {
	return e.part().take(ctx, "campaign", true)
}

// Lead campaigns, and runs f as leader; the context of f ends when the leadership is lost. Lead
// resigns only after f has returned, so a leader has stopped before the next one starts. Otherwise
// it is as Mutex.Do; call it again to campaign again.
func (e *Election) Lead(ctx context.Context, f func(context.Context) error) error {
	return e.part().do(ctx, "campaign", f)
}

func (e *Election) part() *lock {
	if e == nil {
		return nil
	}
	return &e.lock
}

// Leader describes the current leader.
type Leader struct {
	Name    string // from Candidate; else program, user, host and pid
	Address string // from Candidate
	Term    uint64 // the fencing token of the leadership
	Holder         // all that the store knows
}

// Leader returns the current leader, or nil if there is none: one exchange with the store. Errors:
// ErrKind, and those of Client.Inspect.
func (e *Election) Leader(ctx context.Context) (*Leader, error) {
	if err := e.part().usable("leader"); err != nil {
		return nil, err
	}
	r, err := e.c.Inspect(ctx, e.req.Name)
	if err != nil {
		return nil, err
	}
	return e.leaderIn("leader", &r)
}

// leaderIn returns the leader that the record of the election shows, or nil if there is none.
func (e *Election) leaderIn(op string, r *Record) (*Leader, error) {
	if r.Damaged != "" {
		return nil, &Error{Op: op, Name: e.req.Name, Err: fmt.Errorf("%w: %s", ErrDamaged, r.Damaged)}
	}
	if r.Kind == "semaphore" || r.Kind == "latch" {
		return nil, &Error{Op: op, Name: e.req.Name, Err: fmt.Errorf("%w: it is a %s", ErrKind, r.Kind)}
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

// Observe yields the leader, now and after each change, until ctx ends or the client is closed; nil
// for none. It is [Client.Watch] of one name: a change is reported at once by stores that can, and
// otherwise within a third of the TTL. It may miss a leader in between; the terms show that. It
// yields an error of the store once for each outage, and goes on.
func (e *Election) Observe(ctx context.Context) iter.Seq2[*Leader, error] {
	return func(yield func(*Leader, error) bool) {
		const op = "observe"
		if err := e.part().usable(op); err != nil {
			yield(nil, err)
			return
		}
		var now *Leader // nil: none
		var none error  // why now is none
		for ev, err := range e.c.watchNames(ctx, op, e.req.Name, true) {
			if err != nil {
				if !yield(nil, err) {
					return
				}
				continue
			}
			before, failed := now, none
			if ev.Type != EventReady {
				now, none = e.leaderIn(op, &ev.Record)
			} else if now != nil || none != nil {
				continue // it was reported
			}
			switch {
			case none != nil && failed != nil: // it was reported
			case none == nil && failed == nil && ev.Type != EventReady && sameLeader(before, now):
			case !yield(now, none):
				return
			}
		}
	}
}

// sameLeader reports whether the leadership is the same, in the hands of the same process.
func sameLeader(a, b *Leader) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Term == b.Term && a.ID == b.ID
}
