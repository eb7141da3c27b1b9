package history_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/memlock"
)

const ttl = time.Second

// run is some minutes of virtual time. Clients of a store in memory take locks of each kind, are
// cut off and die, and record it.
type run struct {
	rec     *history.Recorder
	buf     bytes.Buffer
	ids     sync.Mutex
	attempt int
	cell    cell
	mistake mistake
	store   *memlock.Store
}

// cell is a fenced number, which the exclusive lock guards.
type cell struct {
	mu      sync.Mutex
	highest uint64
	value   int64
}

func (r *run) newID() string {
	r.ids.Lock()
	defer r.ids.Unlock()
	r.attempt++
	return fmt.Sprint(r.attempt)
}

// contact is one step of the resource, recorded within the step.
func (r *run) contact(kind history.Kind, e history.Event, token uint64, value int64) (int64, bool) {
	r.cell.mu.Lock()
	defer r.cell.mu.Unlock()
	e.Kind, e.Token, e.Result = kind, token, history.Accepted
	if token < r.cell.highest && !r.mistake.unfenced {
		e.Result = history.Rejected
	} else {
		r.cell.highest = max(r.cell.highest, token)
		if kind == history.Write {
			r.cell.value = value
		}
	}
	e.Value = r.cell.value
	r.rec.Record(e)
	return r.cell.value, e.Result == history.Accepted
}

// proofs records what proves leases, between a client and its store.
type proofs struct {
	driver.Backend
	r       *run
	client  string
	mu      sync.Mutex
	of      map[string]int64 // of each name: when the exchange was sent from which a grant counts
	current history.Event    // the current attempt
}

func (p *proofs) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	if f := p.r.mistake.open; f != nil {
		f(&cfg)
	}
	s, err := p.Backend.Open(ctx, cfg)
	return &proven{&mistaken{s, p}, p}, err
}

func (p *proofs) prove(name string, at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[name] = max(p.of[name], at)
}

// queued notes that the current attempt is in the queue.
func (p *proofs) queued(holdfast.Waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.current
	e.Kind = history.Queued
	p.r.rec.Record(e)
}

type proven struct {
	driver.Session
	p *proofs
}

func (s *proven) Acquire(ctx context.Context, req *driver.Request) (driver.Reply, error) {
	sent := s.p.r.rec.Clock()
	reply, err := s.Session.Acquire(ctx, req)
	if err == nil {
		s.p.prove(req.Name, sent-int64(reply.Stale))
	}
	return reply, err
}

func (s *proven) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	sent := s.p.r.rec.Clock()
	changes, err := s.Session.Renew(ctx, holds)
	if err != nil {
		return changes, err
	}
	for i, h := range holds {
		gone := slices.ContainsFunc(changes, func(ch driver.Change) bool {
			return ch.Index == i && (ch.State == driver.Gone || ch.State == driver.Unknown)
		})
		switch {
		case gone:
		case h.Token == 0:
			s.p.prove(h.Name, sent)
		default:
			s.p.r.rec.Record(history.Event{Kind: history.Renewed, Client: s.p.client, Name: h.Name, Token: h.Token, From: sent})
		}
	}
	return changes, err
}

// use takes one lock, works under it, and releases it.
func (r *run) use(ctx context.Context, rng *rand.Rand, c *holdfast.Client, p *proofs, conn drivertest.Conn) {
	e := history.Event{Client: p.client, ID: r.newID(), Name: "mutex", TTL: ttl, Wait: true}
	lock := c.Mutex("mutex").Lock
	switch n := 1 + rng.IntN(2); rng.IntN(6) {
	case 0:
		e.Name, e.Mode = "rw", driver.Exclusive
		lock = c.RWMutex("rw").Lock
	case 1:
		e.Name, e.Mode = "rw", driver.Shared
		lock = c.RWMutex("rw").RLock
	case 2:
		e.Name, e.Mode, e.N, e.Limit = "sema", driver.Permits, int32(n), 3
		lock = func(ctx context.Context) (*holdfast.Lease, error) {
			return c.Semaphore("sema", 3).Acquire(ctx, n)
		}
	case 3:
		lock, e.Wait = c.Mutex("mutex").TryLock, false
	}
	note := func(kind history.Kind, f func(*history.Event)) int64 {
		e := history.Event{Client: e.Client, ID: e.ID, Name: e.Name, Kind: kind}
		if f != nil {
			f(&e)
		}
		return r.rec.Record(e)
	}
	p.mu.Lock()
	p.current = event(e)
	p.mu.Unlock()
	e.Kind = history.Acquire
	r.rec.Record(e)
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	l, err := lock(wait)
	switch {
	case ctx.Err() != nil && err != nil:
		return // dead
	case errors.Is(err, holdfast.ErrHeld):
		note(history.Refused, func(e *history.Event) { e.Result = history.Rejected })
		return
	case wait.Err() != nil && err != nil:
		note(history.Cancelled, nil)
		return
	case err != nil:
		note(history.Unanswered, func(e *history.Event) { e.Text = err.Error() })
		return
	}
	p.mu.Lock()
	from := p.of[e.Name]
	p.mu.Unlock()
	note(history.Granted, func(e *history.Event) { e.Token, e.From = l.Token(), from })
	ended := make(chan struct{})
	stop := context.AfterFunc(l.Context(context.Background()), func() {
		defer close(ended)
		if errors.Is(l.Err(), holdfast.ErrLost) && ctx.Err() == nil {
			note(history.Lost, nil)
		}
	})
	r.work(ctx, rng, l, e, note, conn)
	if ctx.Err() != nil {
		stop()
		return // dead
	}
	if !stop() { // the lease has ended: its loss is recorded first
		<-ended
	}
	note(history.Release, nil)
	err = l.Release()
	if ctx.Err() != nil {
		return
	}
	note(history.Released, func(e *history.Event) {
		switch {
		case err == nil:
			e.Result = history.Accepted
		case errors.Is(err, holdfast.ErrLost):
			e.Result = history.Rejected
		default:
			e.Result = history.Unknown
		}
	})
}

// work is the work under a lock; sometimes the client is cut off from its store meanwhile.
func (r *run) work(ctx context.Context, rng *rand.Rand, l *holdfast.Lease, e history.Event,
	note func(history.Kind, func(*history.Event)) int64, conn drivertest.Conn) {
	pause := time.Duration(1+rng.IntN(40)) * time.Millisecond
	if rng.IntN(40) == 0 {
		fault := history.Event{Kind: history.Fault, ID: "cut" + e.ID, Target: e.Client, Text: "cut"}
		r.rec.Record(fault)
		heal := conn.Cut()
		defer func() {
			heal()
			fault.Kind = history.Healed
			r.rec.Record(fault)
		}()
		pause = ttl + time.Duration(rng.IntN(int(ttl)))
	}
	var value int64
	ok := false
	if e.Name == "mutex" {
		if _, ok = r.contact(history.Begin, event(e), l.Token(), 0); ok {
			value, ok = r.contact(history.Read, event(e), l.Token(), 0)
		}
	}
	for end := time.Now().Add(pause); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause / 4):
		}
		asked := r.rec.Clock()
		if l.Err() == nil || r.mistake.overClaim {
			note(history.Held, func(e *history.Event) { e.T = asked })
		}
	}
	if ok { // even after the lease's end: the resource must refuse it then
		note(history.Writing, func(e *history.Event) { e.Token, e.Value = l.Token(), value+1 })
		r.contact(history.Write, event(e), l.Token(), value+1)
	}
}

func event(e history.Event) history.Event {
	return history.Event{Client: e.Client, ID: e.ID, Name: e.Name}
}

// runClient is one client, from New to its death or to the end of the run.
func (r *run) runClient(t *testing.T, rng *rand.Rand, client string, lifetime time.Duration, last bool) {
	conn := drivertest.Faulty(r.store)
	p := &proofs{Backend: conn, r: r, client: client, of: map[string]int64{}}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	c, err := holdfast.New(ctx, p, &holdfast.Config{TTL: ttl, Observer: &holdfast.Observer{Waiting: p.queued}})
	if err != nil {
		t.Error(err)
		return
	}
	if !last {
		timer := time.AfterFunc(lifetime, func() {
			r.rec.Record(history.Event{Kind: history.Died, Client: client})
			end()
			conn.Kill()
		})
		defer timer.Stop()
	}
	for begin := time.Now(); time.Since(begin) < lifetime && ctx.Err() == nil; {
		r.use(ctx, rng, c, p, conn)
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
	if ctx.Err() == nil {
		r.rec.Record(history.Event{Kind: history.Closed, Client: client})
	}
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_ = c.Close(closing) // fails for a dead client
}

// record makes a history of 5 clients, each of which dies some times.
func record(t *testing.T, seed uint64, m mistake) []history.Event {
	var events []history.Event
	synctest.Test(t, func(t *testing.T) {
		r := &run{mistake: m, store: memlock.New()}
		begin := time.Now()
		r.rec = history.NewRecorder(&r.buf)
		r.rec.Clock = func() int64 { return int64(time.Since(begin)) + 1 }
		r.rec.Record(history.Event{Kind: history.Run, Text: fmt.Sprint("memory, seed ", seed), TTL: ttl})
		var clients sync.WaitGroup
		for i := range 5 {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			clients.Go(func() {
				const runs = 3
				for number := range runs {
					r.runClient(t, rng, fmt.Sprintf("p%d.%d", i, number), time.Duration(3+rng.IntN(5))*time.Second, number == runs-1)
				}
			})
		}
		clients.Wait()
		time.Sleep(2 * ttl) // the leases of dead clients expire
		for _, name := range []string{"mutex", "rw", "sema", "idle"} {
			rec, err := r.store.Inspect(context.Background(), name)
			if err != nil {
				t.Error(err)
			}
			used := 0
			for _, h := range rec.Holders {
				used += h.N
			}
			r.rec.Record(history.Event{Kind: history.State, Name: name, N: int32(used), Value: int64(rec.Waiting),
				Token: rec.Token, Limit: int32(rec.Limit)})
		}
		r.rec.Record(history.Event{Kind: history.Final, Name: "mutex", Value: r.cell.value, Token: r.cell.highest})
		if err := r.rec.Close(); err != nil {
			t.Error(err)
		}
		var err error
		if events, err = history.ReadAll(&r.buf); err != nil {
			t.Error(err)
		}
	})
	return events
}

func TestRecorded(t *testing.T) {
	for seed := range uint64(testenv.Rounds(2, 5)) {
		events := record(t, seed, mistake{})
		r := history.Check(events, history.Options{MinGrants: 200, MinFaults: 2, MinWaiting: 1, Windows: -1})
		if r.Outcome != history.Clean {
			t.Errorf("seed %d: %s", seed, r)
		}
		if seed == 0 {
			t.Logf("%s", r)
		}
	}
}
