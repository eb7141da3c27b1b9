package holdfast

import (
	"sync"
	"time"
)

// abandoned are requests that the store may have granted, or may still grant, although no caller has a lease
// of them: see [Holder.Abandoned]. A cancellation is on its way. A request stays on record when that has been
// answered: a refusal that names its grant may arrive later, and a cancellation that comes after the lease
// leaves the minimum hold.
type abandoned struct {
	mu            sync.Mutex
	kept          map[string]time.Time // with a minimum hold: when the store has ended the last grant
	purgeAt       int                  // how many of them there are when those that have ended are forgotten next
	recent, older map[string]struct{}  // without one
}

// mostAbandoned bounds how many requests without a minimum hold are remembered. The latest half of them always are.
const mostAbandoned = 4096

// add records a request. until is when the store has ended the last grant, if that may have a minimum hold.
func (a *abandoned) add(id string, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !until.IsZero() {
		a.purge()
		a.kept[id] = until
		return
	}
	if len(a.recent) >= mostAbandoned/2 {
		clear(a.older)
		a.recent, a.older = a.older, a.recent
	}
	if a.recent == nil {
		a.recent = map[string]struct{}{}
	}
	a.recent[id] = struct{}{}
}

// purge forgets what has ended, if there is twice as much on record as after the last time.
func (a *abandoned) purge() {
	if a.kept == nil {
		a.kept = map[string]time.Time{}
	}
	if len(a.kept) < a.purgeAt {
		return
	}
	now := time.Now()
	for id, until := range a.kept {
		if now.After(until) {
			delete(a.kept, id)
		}
	}
	a.purgeAt = max(2*len(a.kept), 64)
}

// has reports whether a request is on record.
func (a *abandoned) has(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.kept[id]
	for _, m := range []map[string]struct{}{a.recent, a.older} {
		if _, ok := m[id]; ok {
			known = true
		}
	}
	return known
}

// abandon cancels l's request in the background, and ends the grant that it may have got. No caller has a lease of it.
func (l *Lease) abandon(unanswered bool) *task {
	l.recordAbandoned()
	return l.c.cancelInBackground(l.session, l.req.Name, l.req.ID, unanswered)
}

// recordAbandoned records that no caller has, or wants to have had, a lease of l's request.
func (l *Lease) recordAbandoned() {
	c, until := l.c, time.Time{}
	if l.req.MinHold > 0 { // an exchange may arrive after its limit, and a place lasts for a TTL, as does a lease
		until = time.Now().Add(l.req.MinHold + c.limit() + 3*c.TTL())
	}
	c.abandoned.add(l.req.ID, until)
}
