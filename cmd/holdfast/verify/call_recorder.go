package verify

import (
	"context"
	"errors"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"

	"github.com/holdfast-lock/holdfast/open"
)

// callRecorder records one attempt as the application sees it: its calls and their answers.
type callRecorder struct {
	*attempt
	l        *loop
	lockSpec lockSpec

	stop func() bool   // ends the watch
	lost chan struct{} // closed when a loss has been recorded
}

// record records an event of the attempt.
func (t *callRecorder) record(e history.Event) int64 {
	e.Client, e.ID, e.Name = t.l.m.number, t.id, t.lockSpec.name
	return t.l.w.rec.Record(e)
}

// called records the call. It reads the clock before the call.
func (t *callRecorder) called() {
	w := &t.lockSpec
	e := history.Event{Kind: history.Acquire, Mode: w.mode, Wait: w.wait, TTL: t.l.m.client.TTL()}
	if w.kind == semaphores {
		e.N, e.Limit = int32(w.n), permits
	}
	t.call = t.record(e)
}

// returned records the answer, and reports whether it is a grant.
func (t *callRecorder) returned(lease *holdfast.Lease, err error) bool {
	at := history.Now()
	if queued := t.queuedSince(); queued != 0 {
		t.record(history.Event{T: queued, Kind: history.Queued})
	}
	if err == nil {
		from := min(at, t.since(lease.GrantToken()))
		t.record(history.Event{T: at, Kind: history.Granted, Token: lease.Token(), From: from})
		return true
	}
	e := t.outcome(err)
	e.T = at
	t.record(e)
	return false
}

// outcome returns the event for an error of a call. After a failure the outcome is unknown, even if
// the last error is ErrUnavailable. The store may have granted in an earlier exchange of the call.
func (t *callRecorder) outcome(err error) history.Event {
	l := t.l
	text := open.Scrub(err.Error(), l.w.job.URL)
	switch {
	case errors.Is(err, holdfast.ErrHeld):
		return history.Event{Kind: history.Refused, Result: history.Rejected}
	case errors.Is(err, holdfast.ErrUncertain), errors.Is(err, holdfast.ErrUnavailable):
	case errors.Is(err, context.Canceled):
		return history.Event{Kind: history.Cancelled}
	case errors.Is(err, context.DeadlineExceeded):
		if t.lockSpec.patient {
			l.w.failed(err)
			return history.Event{Kind: history.Cancelled, Text: "it waited for " + waitLimit.String()}
		}
		return history.Event{Kind: history.Cancelled}
	case refusal(err) && !t.unclear():
		if !l.unsupported(t.lockSpec.kind, err) {
			l.w.failed(err)
			l.backOff()
		}
		return history.Event{Kind: history.Refused, Text: text}
	}
	l.w.failed(err)
	l.backOff()
	return history.Event{Kind: history.Unanswered, Text: text}
}

// watch records the loss of the lease as soon as the application can see it.
func (t *callRecorder) watch(lease *holdfast.Lease) {
	t.lost = make(chan struct{})
	t.stop = context.AfterFunc(lease.Context(context.Background()), func() {
		defer close(t.lost)
		at := history.Now()
		if err := lease.Err(); errors.Is(err, holdfast.ErrLost) {
			t.recordLoss(at, err)
		}
	})
}

func (t *callRecorder) recordLoss(at int64, err error) {
	t.l.holding.Store(false)
	e := history.Event{T: at, Kind: history.Lost, Text: err.Error()}
	if r := reasonOf(err); r == holdfast.ReasonExpired || r == holdfast.ReasonUnreachable {
		// An application that asked would have seen it then, however late this goroutine ran.
		e.From = min(at, t.lapsed())
	}
	t.record(e)
}

func reasonOf(err error) holdfast.Reason {
	var e *holdfast.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// sample records whether the client trusts the lease.
func (t *callRecorder) sample(lease *holdfast.Lease) {
	at := history.Now()
	if lease.Err() == nil {
		t.record(history.Event{T: at, Kind: history.Held})
	}
}

func (t *callRecorder) downgrade(lease *holdfast.Lease) {
	t.record(history.Event{Kind: history.Downgrade})
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
	t.record(e)
}

// release releases the lock. It records a loss that the application can see before.
func (t *callRecorder) release(lease *holdfast.Lease) {
	err := lease.Err()
	if err != nil || !t.stop() {
		<-t.lost
	}
	sent := history.Now()
	t.record(history.Event{T: sent, Kind: history.Release})
	released := lease.Release()
	at := history.Now()
	e := history.Event{T: at, Kind: history.Released, Result: history.Unknown}
	switch {
	case released == nil:
		e.Result = history.Accepted
	case errors.Is(released, holdfast.ErrLost):
		e.Result = history.Rejected
		if err == nil && endedAtStore(reasonOf(released)) {
			// Found after the check above. The holder has claimed nothing since it called Release.
			t.l.holding.Store(false)
			t.record(history.Event{T: at, Kind: history.Lost, Text: released.Error(), From: sent})
		}
	default:
		t.l.w.failed(released)
		t.l.backOff()
	}
	t.record(e)
}

// endedAtStore reports whether the store, and not the client's own clock, ended a lease.
func endedAtStore(r holdfast.Reason) bool {
	switch r {
	case holdfast.ReasonExpired, holdfast.ReasonUnreachable, holdfast.ReasonTaken, holdfast.ReasonMaxHold,
		holdfast.ReasonHandedOff:
		return false
	}
	return true
}
