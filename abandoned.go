package holdfast

import "sync"

// abandoned are requests that the store may have granted, or may still grant, although no caller has a lease
// of them: see [Holder.Abandoned]. A cancellation is on its way. A request stays on record when that has been
// answered: a refusal that names its grant may arrive later, and a cancellation that comes after the lease
// leaves the minimum hold.
type abandoned struct {
	mu     sync.Mutex
	kept   recent // with a minimum hold, which may last for days
	others recent // their grants end with their leases
}

// mostKept and mostOthers bound how many requests are on record. The latest half of them always are.
const (
	mostKept   = 1 << 16
	mostOthers = 1 << 12
)

func (a *abandoned) add(id string, keeps bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if keeps {
		a.kept.add(id, mostKept)
	} else {
		a.others.add(id, mostOthers)
	}
}

// has reports whether a request is on record.
func (a *abandoned) has(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kept.has(id) || a.others.has(id)
}

// recent is a set of the IDs that were added last.
type recent struct{ latest, older map[string]struct{} }

// add adds an ID. If there are most of them, it first forgets the older half.
func (r *recent) add(id string, most int) {
	if len(r.latest) >= most/2 {
		r.latest, r.older = nil, r.latest
	}
	if r.latest == nil {
		r.latest = map[string]struct{}{}
	}
	r.latest[id] = struct{}{}
}

func (r *recent) has(id string) bool {
	_, latest := r.latest[id]
	_, older := r.older[id]
	return latest || older
}

// abandon cancels l's request in the background, and ends the grant that it may have got. No caller has a lease of it.
func (l *Lease) abandon(unanswered bool) *task {
	l.recordAbandoned()
	return l.c.cancelInBackground(l.session, l.req.Name, l.req.ID, unanswered)
}

// recordAbandoned records that no caller has, or wants to have had, a lease of l's request.
func (l *Lease) recordAbandoned() { l.c.abandoned.add(l.req.ID, l.req.MinHold > 0) }
