package verify

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/history"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/open"
)

// member is one holdfast client of a worker.
type member struct {
	number, name string // the name has the process before it
	witness      *witness
	client       *holdfast.Client
}

// How long the steps of an end in order may take: ten seconds, and then what is left must settle.
const (
	endLoops   = 5500 * time.Millisecond // the longest that a release takes, and some more
	endClients = time.Second
	endStore   = 3 * time.Second  // rueidis waits that long for a server that is silent
	settle     = 20 * time.Second // what the store's client leaves running for a while: pgx waits 15 s for a server that is silent
)

// run is a worker's life: it connects, takes locks until life ends, and ends in order.
func (w *worker) run(life context.Context, ready chan<- struct{}) error {
	// It is reached before the first reading of the gauges: what the program itself needs for its first
	// connection is there then.
	probe, err := net.DialTimeout("tcp", w.job.Resource, fencePatience)
	if err != nil {
		return fmt.Errorf("the fenced resource: %w", err)
	}
	_ = probe.Close()
	first := w.gauges()
	w.record(first)

	st, members, err := w.connect(life)
	if len(members) == w.job.Clients {
		close(ready)
		err = w.loop(life, members)
	}
	return errors.Join(err, w.end(st, members, first))
}

// connect opens the store and the clients. It tries until it succeeds or life ends, and returns what it has
// by then. Only a URL or TTL that makes no sense is an error.
func (w *worker) connect(life context.Context) (st *open.Store, members []*member, err error) {
	pause := 20 * time.Millisecond
	said := time.Time{}
	for life.Err() == nil && len(members) < w.job.Clients {
		if st == nil {
			st, err = open.Via(life, w.job.URL, w.relayed())
		} else {
			var m *member
			if m, err = w.join(life, st, len(members)); err == nil {
				members = append(members, m)
			}
		}
		switch {
		case err == nil:
			continue
		case life.Err() != nil:
		case errors.Is(err, holdfast.ErrInvalid):
			return st, members, open.Redact(err, w.job.URL)
		}
		w.failed(err)
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			w.say(fmt.Errorf("cannot connect yet: %w", err))
		}
		rest(life, pause)
		pause = min(2*pause, time.Second)
	}
	return st, members, nil
}

// join opens the next client.
func (w *worker) join(life context.Context, st *open.Store, n int) (m *member, err error) {
	m = &member{number: strconv.Itoa(n)}
	m.name = w.job.Process + "/" + m.number
	m.witness = newWitness(st, w.rec, m.number)
	m.client, err = holdfast.New(life, m.witness, &holdfast.Config{
		TTL: w.job.TTL, Program: "holdfast verify", Labels: map[string]string{"verify": m.name},
		Observer: &holdfast.Observer{Waiting: m.witness.waiting},
	})
	return m, err
}

// relayed dials through the coordinator's relay, which is told in the first line whom to connect to.
func (w *worker) relayed() open.Dialer {
	j := w.job
	if j.Relay == "" {
		return nil
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.ContainsAny(address, "\r\n") {
			return nil, fmt.Errorf("there is a line break in the address %q", address)
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", j.Relay)
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(c, j.Process+" "+network+" "+address+" "+j.Key+"\n"); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return c, nil
	}
}

// loop runs the loops until life ends and all of them have.
func (w *worker) loop(life context.Context, members []*member) error {
	loops := make([]*loop, w.job.Loops)
	h := fnv.New64a()
	_, _ = io.WriteString(h, w.job.Process)
	for i := range loops {
		loops[i] = &loop{w: w, m: members[i%len(members)], number: i,
			rng: rand.New(rand.NewPCG(w.job.Seed, h.Sum64()+uint64(i))), fence: fence{addr: w.job.Resource}}
	}
	w.mu.Lock()
	w.loops = loops
	w.mu.Unlock()
	var all sync.WaitGroup
	for _, l := range loops {
		all.Go(func() { l.run(life) })
	}
	if w.job.Own {
		for _, m := range members {
			all.Go(func() { w.keepOwn(life, m) })
		}
	}
	<-life.Done()
	if within(endLoops, all.Wait) {
		return nil
	}
	return fmt.Errorf("calls have not ended %v after they were called off", endLoops)
}

// keepOwn holds a mutex that only m asks for, until life ends. No history tells of it: whatever is done to its record
// must leave the locks that are judged as they are.
func (w *worker) keepOwn(life context.Context, m *member) {
	own := m.client.Mutex(w.job.Prefix + OwnNames + m.name)
	for life.Err() == nil {
		l, err := own.Lock(life)
		if err != nil {
			rest(life, w.job.TTL/10)
			continue
		}
		select {
		case <-l.Done():
		case <-life.Done():
		}
		_ = l.Release() // of a lease that was lost, or of a store that is broken
	}
}

// within reports whether f has ended after d.
func within(d time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// end closes the clients, one after the other, and the store, and reads the gauges for the last time.
func (w *worker) end(st *open.Store, members []*member, first gauges) error {
	ctx, cancel := context.WithTimeout(context.Background(), endClients)
	defer cancel()
	for _, m := range members {
		// Recorded before: from here on it claims nothing.
		w.rec.Record(history.Event{Kind: history.Closed, Client: m.number})
		if err := m.client.Close(ctx); err != nil { // of a store that is broken; the TTL ends what it has
			w.say(err)
		}
	}
	if st != nil {
		var err error
		if !within(endStore, func() { err = st.Close() }) {
			return fmt.Errorf("the store's connections have not been closed after %v", endStore)
		}
		if err != nil {
			w.say(err)
		}
	}
	last := w.gauges()
	for until := time.Now().Add(settle); !last.within(first) && time.Now().Before(until); last = w.gauges() {
		time.Sleep(10 * time.Millisecond)
	}
	w.record(last)
	return nil
}

// gauges are counts that must not be higher at the end than at first.
type gauges struct {
	goroutines int64
	files      int64 // open file descriptors; -1: not known here
}

func (w *worker) gauges() gauges {
	return gauges{int64(runtime.NumGoroutine()), openFiles()}
}

func (g gauges) within(first gauges) bool {
	return g.goroutines <= first.goroutines && g.files <= first.files
}

func (w *worker) record(g gauges) {
	w.rec.Record(history.Event{Kind: history.Gauge, Target: "goroutines", Value: g.goroutines})
	if g.files >= 0 {
		w.rec.Record(history.Event{Kind: history.Gauge, Target: "open files", Value: g.files})
	}
}
