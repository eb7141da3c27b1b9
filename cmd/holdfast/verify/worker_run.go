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
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"

	"github.com/holdfast-lock/holdfast/internal/backoff"
	"github.com/holdfast-lock/holdfast/open"
)

// workerClient is one holdfast client of a worker.
type workerClient struct {
	number, name  string // name starts with the process
	proofRecorder *proofRecorder
	client        *holdfast.Client
}

// How long the steps of an orderly end may take: 17 seconds in all, then settleLimit for the rest.
const (
	endLoops   = 5500 * time.Millisecond // somewhat more than the longest release
	endClients = time.Second
	endStore   = 10 * time.Second // rueidis waits two for a silent server, and longer on a busy machine
	// For goroutines that the store's client leaves behind: pgx waits 15 s for a silent server.
	settleLimit = 20 * time.Second
)

// run connects, takes locks until runCtx ends, and ends in order.
func (w *worker) run(runCtx context.Context, ready chan<- struct{}) error {
	// The first reading of the gauges must include what the program itself needs for its first
	// connection.
	probe, err := net.DialTimeout("tcp", w.job.Resource, fenceTimeout)
	if err != nil {
		return fmt.Errorf("the fenced resource: %w", err)
	}
	_ = probe.Close()
	first := w.gauges()
	w.record(first)

	st, clients, err := w.connect(runCtx)
	if len(clients) == w.job.Clients {
		close(ready)
		err = w.loop(runCtx, clients)
	}
	return errors.Join(err, w.end(st, clients, first))
}

// connect opens the store and the clients. It tries until it succeeds or runCtx ends, and returns
// what it has opened by then. Only an invalid URL or TTL is an error.
func (w *worker) connect(runCtx context.Context) (st *open.Store, clients []*workerClient, err error) {
	pause := backoff.Pause{First: 20 * time.Millisecond, Most: time.Second}
	lastWarning := time.Time{}
	for runCtx.Err() == nil && len(clients) < w.job.Clients {
		if st == nil {
			st, err = open.Via(runCtx, w.job.URL, w.relayed())
		} else {
			var m *workerClient
			if m, err = w.join(runCtx, st, len(clients)); err == nil {
				clients = append(clients, m)
			}
		}
		switch {
		case err == nil:
			continue
		case runCtx.Err() != nil:
		case errors.Is(err, holdfast.ErrInvalid):
			return st, clients, open.Redact(err, w.job.URL)
		}
		w.failed(err)
		if time.Since(lastWarning) > 5*time.Second {
			lastWarning = time.Now()
			w.warn(fmt.Errorf("cannot connect yet: %w", err))
		}
		pause.Wait(runCtx)
	}
	return st, clients, nil
}

// join opens the next client.
func (w *worker) join(runCtx context.Context, st *open.Store, n int) (m *workerClient, err error) {
	m = &workerClient{number: strconv.Itoa(n)}
	m.name = w.job.Process + "/" + m.number
	m.proofRecorder = newProofRecorder(st, w.rec, m.number)
	cfg := &holdfast.Config{
		TTL: w.job.TTL, Program: "holdfast verify", Labels: map[string]string{"verify": m.name},
		Observer: &holdfast.Observer{Waiting: m.proofRecorder.waiting, WaitEnded: m.proofRecorder.waitEnded}, Passes: -1,
	}
	if n%2 == 1 { // the calls of every other client pass locks among themselves, and may overtake others
		cfg.Passes = 0
		w.rec.Record(history.Event{Kind: history.Run, Client: m.number, Target: history.Unordered})
	}
	m.client, err = holdfast.New(runCtx, m.proofRecorder, cfg)
	return m, err
}

// relayed dials through the coordinator's relay. The first line gives the relay the target.
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

// loop runs the loops until runCtx and all of them have ended.
func (w *worker) loop(runCtx context.Context, clients []*workerClient) error {
	loops := make([]*loop, w.job.Loops)
	h := fnv.New64a()
	_, _ = io.WriteString(h, w.job.Process)
	for i := range loops {
		loops[i] = &loop{w: w, m: clients[i%len(clients)], number: i,
			rng: rand.New(rand.NewPCG(w.job.Seed, h.Sum64()+uint64(i))), fence: fence{addr: w.job.Resource, key: w.job.Key}}
	}
	w.mu.Lock()
	w.loops = loops
	w.mu.Unlock()
	var all sync.WaitGroup
	for _, l := range loops {
		all.Go(func() { l.run(runCtx) })
	}
	if w.job.Own {
		for _, m := range clients {
			all.Go(func() { w.keepOwn(runCtx, m) })
		}
	}
	<-runCtx.Done()
	if within(endLoops, all.Wait) {
		return nil
	}
	return fmt.Errorf("calls have not ended %v after they were cancelled", endLoops)
}

// keepOwn holds a mutex that only m asks for, until runCtx ends. No history mentions it: faults of
// its record must not affect the locks under test.
func (w *worker) keepOwn(runCtx context.Context, m *workerClient) {
	own := m.client.Mutex(w.job.Prefix + OwnNames + m.name)
	for runCtx.Err() == nil {
		l, err := own.Lock(runCtx)
		if err != nil {
			backoff.Sleep(runCtx, w.job.TTL/10)
			continue
		}
		select {
		case <-l.Done():
		case <-runCtx.Done():
		}
		_ = l.Release() // it fails for a lost lease or a broken store
	}
}

// within reports whether f returns within d.
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

// end closes the clients, one after the other, and the store, and reads the gauges for the last
// time.
func (w *worker) end(st *open.Store, clients []*workerClient, first gauges) error {
	ctx, cancel := context.WithTimeout(context.Background(), endClients)
	defer cancel()
	for _, m := range clients {
		// Recorded before the call: from here on the client claims nothing.
		w.rec.Record(history.Event{Kind: history.Closed, Client: m.number})
		if err := m.client.Close(ctx); err != nil { // of a broken store; leases expire by their TTL
			w.warn(err)
		}
	}
	if st != nil {
		var err error
		if !within(endStore, func() { err = st.Close() }) {
			return fmt.Errorf("the store's connections have not been closed after %v", endStore)
		}
		if err != nil {
			w.warn(err)
		}
	}
	last := w.gauges()
	for until := time.Now().Add(settleLimit); !last.within(first) && time.Now().Before(until); last = w.gauges() {
		time.Sleep(10 * time.Millisecond)
	}
	w.record(last)
	return nil
}

// gauges are counts that must not be higher at the end than at first.
type gauges struct {
	goroutines int64
	files      int64 // open file descriptors; -1: unknown on this system
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
