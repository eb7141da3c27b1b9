package verify

import (
	"context"
	"errors"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/history"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/open"
)

// told is an attempt as the application sees it: it records what is asked and what is answered.
type told struct {
	*attempt
	l    *loop
	wish wish

	stop func() bool   // watches no more
	lost chan struct{} // closed when a loss has been recorded
}

// tell records an event of the attempt.
func (t *told) tell(e history.Event) int64 {
	e.Client, e.ID, e.Name = t.l.m.number, t.id, t.wish.name
	return t.l.w.rec.Record(e)
}

// asks records the call. It is read from the clock here, before the call.
func (t *told) asks() {
	w := &t.wish
	e := history.Event{Kind: history.Acquire, Mode: w.mode, Wait: w.wait, TTL: t.l.m.client.TTL()}
	if w.kind == semaphores {
		e.N, e.Limit = int32(w.n), permits
	}
	t.call = t.tell(e)
}

// hears records the answer, and reports whether it is a grant.
func (t *told) hears(lease *holdfast.Lease, err error) bool {
	at := history.Now()
	if queued := t.stood(); queued != 0 {
		t.tell(history.Event{T: queued, Kind: history.Queued})
	}
	if err == nil {
		token := lease.Token()
		t.tell(history.Event{T: at, Kind: history.Granted, Token: token, From: min(at, t.since(token))})
		return true
	}
	e := t.outcome(err)
	e.T = at
	t.tell(e)
	return false
}

// outcome says what an error of a call means. Of a store that failed nobody knows what it did, even if its
// last answer was that it cannot be reached: it may have taken in an earlier exchange of the call.
func (t *told) outcome(err error) history.Event {
	l := t.l
	text := open.Scrub(err.Error(), l.w.job.URL)
	switch {
	case errors.Is(err, holdfast.ErrHeld):
		return history.Event{Kind: history.Refused, Result: history.Rejected}
	case errors.Is(err, holdfast.ErrUncertain), errors.Is(err, holdfast.ErrUnavailable):
	case errors.Is(err, context.Canceled):
		return history.Event{Kind: history.Cancelled}
	case errors.Is(err, context.DeadlineExceeded):
		if t.wish.patient {
			l.w.failed(err)
			return history.Event{Kind: history.Cancelled, Text: "it waited for " + patience.String()}
		}
		return history.Event{Kind: history.Cancelled}
	case refusal(err) && !t.unclear():
		if !l.unsupported(t.wish.kind, err) {
			l.w.failed(err)
			l.slower()
		}
		return history.Event{Kind: history.Refused, Text: text}
	}
	l.w.failed(err)
	l.slower()
	return history.Event{Kind: history.Unanswered, Text: text}
}

// watches records the loss of the lease as soon as the application can see it.
func (t *told) watches(lease *holdfast.Lease) {
	t.lost = make(chan struct{})
	t.stop = context.AfterFunc(lease.Context(context.Background()), func() {
		defer close(t.lost)
		at := history.Now()
		if err := lease.Err(); errors.Is(err, holdfast.ErrLost) {
			t.loses(at, err)
		}
	})
}

func (t *told) loses(at int64, err error) {
	t.l.holding.Store(false)
	e := history.Event{T: at, Kind: history.Lost, Text: err.Error()}
	if reasonOf(err) == holdfast.ReasonExpired {
		// Whoever asked would have heard it then, however late this goroutine came to run.
		e.From = min(at, t.lapsed())
	}
	t.tell(e)
}

func reasonOf(err error) holdfast.Reason {
	var e *holdfast.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// samples asks the client whether the lease stands.
func (t *told) samples(lease *holdfast.Lease) {
	at := history.Now()
	if lease.Err() == nil {
		t.tell(history.Event{T: at, Kind: history.Held})
	}
}

func (t *told) downgrades(lease *holdfast.Lease) {
	t.tell(history.Event{Kind: history.Downgrade})
	err := lease.Downgrade()
	e := history.Event{Kind: history.Downgraded, Result: history.Unknown}
	switch {
	case err == nil:
		e.Result = history.Accepted
	case errors.Is(err, holdfast.ErrLost), errors.Is(err, holdfast.ErrInvalid):
		e.Result = history.Rejected
	default:
		t.l.w.failed(err)
	}
	t.tell(e)
}

// releases gives the lock back. A loss that the application can see is recorded before.
func (t *told) releases(lease *holdfast.Lease) {
	err := lease.Err()
	if err != nil || !t.stop() {
		<-t.lost
	}
	t.tell(history.Event{Kind: history.Release})
	released := lease.Release()
	at := history.Now()
	e := history.Event{T: at, Kind: history.Released, Result: history.Unknown}
	switch {
	case released == nil:
		e.Result = history.Accepted
	case errors.Is(released, holdfast.ErrLost):
		e.Result = history.Rejected
		if r := reasonOf(released); err == nil && (r == holdfast.ReasonRevoked || r == holdfast.ReasonForgotten || r == holdfast.ReasonSession) {
			t.loses(at, released) // between the look and the release: the store was not asked again
		}
	default:
		t.l.w.failed(released)
		t.l.slower()
	}
	t.tell(e)
}
