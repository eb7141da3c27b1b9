package console

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// readLimit bounds one reading of a store that does not answer.
const readLimit = 20 * time.Second

// snapshot is one reading of all names. It does not change.
type snapshot struct {
	at      time.Time // when it began; zero: nothing was read yet
	took    time.Duration
	records []holdfast.Record
	index   map[string]int
	more    bool // there are more names than MaxLocks
	waiting int
	longest map[string]time.Duration // by grant: the longest lease that was seen
	graph   *graph

	err    error // why the reading after this one failed; nil: there is none
	failed time.Time
	silent bool // that reading read nothing
}

// get returns the record of a name, or nil.
func (s *snapshot) get(name string) *holdfast.Record {
	if i, ok := s.index[name]; ok {
		return &s.records[i]
	}
	return nil
}

// stale says why the reading is not the current state, or "".
func (s *snapshot) stale() string {
	switch {
	case s.err == nil && time.Since(s.at) > 15*time.Second+5*s.took:
		return "This is the reading of " + s.at.Format(time.TimeOnly) + ". The next one has not come yet."
	case s.err == nil:
		return ""
	case s.at.IsZero():
		return "Nothing could be read yet: " + reason(s.err) + "."
	}
	return "This is the reading of " + s.at.Format(time.TimeOnly) + ". Since then " + reason(s.err) + "."
}

// reason says in general words why the store was not read. Its own words go to the log.
func reason(err error) string {
	switch {
	case errors.Is(err, holdfast.ErrRefused):
		return "the store refuses this console"
	case errors.Is(err, holdfast.ErrClosed):
		return "the client of this console was closed"
	}
	return "the store has not answered"
}

// reader reads the store for all viewers. While there are viewers, its goroutine reads again and
// again; otherwise a page that needs a reading makes one, if the last is too old.
type reader struct {
	c     *holdfast.Client
	o     *Options
	began time.Time
	slot  chan struct{} // held by the reading under way

	mu      sync.Mutex
	last    *snapshot
	viewers map[*viewer]struct{}
	running bool
	seen    log
}

// viewer is a page that is open. Its channel gets a value when there is a reading that it does not
// have.
type viewer struct{ fresh chan struct{} }

// current returns a reading that is not older than the pause between two, if the store answers.
func (r *reader) current(ctx context.Context) *snapshot {
	if s := r.recent(); s != nil {
		return s
	}
	select {
	case r.slot <- struct{}{}:
	case <-ctx.Done():
		return r.latest()
	}
	defer func() { <-r.slot }()
	if s := r.recent(); s != nil {
		return s
	}
	return r.read(ctx)
}

// recent returns the last reading if it is current enough, or nil.
func (r *reader) recent() *snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.last
	switch {
	case s == nil:
		return nil
	case r.running, time.Since(s.at) < r.o.Every, s.err != nil && time.Since(s.failed) < r.o.Every:
		return s
	case time.Since(s.at) < 5*s.took:
		return s
	}
	return nil
}

// latest returns the last reading, or an empty one.
func (r *reader) latest() *snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return &snapshot{err: errors.New("not read yet"), graph: &graph{}}
	}
	return r.last
}

// read reads the store. The caller has the slot.
func (r *reader) read(ctx context.Context) *snapshot {
	// A viewer that leaves must not end a reading that others wait for.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit)
	defer cancel()
	began := time.Now()
	s := &snapshot{at: began, index: map[string]int{}, longest: map[string]time.Duration{}}
	var err error
	for rec, e := range r.c.Locks(ctx, "") {
		if err = e; e != nil {
			break
		}
		if len(s.records) == r.o.MaxLocks {
			s.more = true
			break
		}
		s.index[rec.Name] = len(s.records)
		s.records = append(s.records, rec)
		s.waiting += rec.Waiting
	}
	s.took = time.Since(began)
	before := r.latest()
	if err != nil {
		if r.o.Logger != nil && before.err == nil {
			r.o.Logger.Warn("console: the store cannot be read", "err", err)
		}
		old := *before
		old.err, old.failed, old.silent = err, time.Now(), len(s.records) == 0
		s = &old
	} else {
		for i := range s.records {
			for j := range s.records[i].Holders {
				h := &s.records[i].Holders[j]
				s.longest[h.ID] = max(h.Left, before.longest[h.ID])
			}
		}
		s.graph = newGraph(s.records, time.Now())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && !before.at.IsZero() {
		r.seen.compare(before, s)
	}
	r.last = s
	for v := range r.viewers {
		select {
		case v.fresh <- struct{}{}:
		default:
		}
	}
	return s
}

// join adds a viewer, and returns nil if there are too many.
func (r *reader) join() *viewer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.viewers) >= r.o.MaxViewers {
		return nil
	}
	if r.viewers == nil {
		r.viewers = map[*viewer]struct{}{}
	}
	v := &viewer{make(chan struct{}, 1)}
	r.viewers[v] = struct{}{}
	if !r.running {
		r.running = true
		go r.run()
	}
	return v
}

func (r *reader) leave(v *viewer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.viewers, v)
}

// run reads until nobody looks.
func (r *reader) run() {
	for {
		r.slot <- struct{}{}
		began := time.Now()
		s := r.read(context.Background())
		<-r.slot
		took := time.Since(began)
		pause := max(r.o.Every-took, 4*took)
		if s.err != nil && s.silent {
			pause = r.o.Every // this was no work for the store, and somebody waits for its return
		}
		time.Sleep(pause)
		r.mu.Lock()
		if len(r.viewers) == 0 {
			r.running = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
	}
}

// looks reads single names for their pages: each at most once a second, however many look.
type looks struct {
	c    *holdfast.Client
	mu   sync.Mutex
	list map[string]*look
}

type look struct {
	once sync.Once
	at   time.Time
	rec  holdfast.Record
	err  error
	past []holdfast.HistoryEntry // what the store has kept, the oldest first
	lost error                   // why past could not be read
}

const (
	lookAge  = time.Second
	maxLooks = 1000
)

// get reads a name and its history.
func (l *looks) get(ctx context.Context, name string) *look {
	l.mu.Lock()
	x := l.list[name]
	if x == nil || time.Since(x.at) > lookAge {
		if len(l.list) >= maxLooks || l.list == nil {
			l.list = map[string]*look{}
		}
		x = &look{at: time.Now()}
		l.list[name] = x
	}
	l.mu.Unlock()
	x.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit)
		defer cancel()
		x.rec, x.err = l.c.Inspect(ctx, name)
		x.rec.Name = name
		if x.err == nil {
			x.past, x.lost = l.c.History(ctx, name)
		}
	})
	return x
}
