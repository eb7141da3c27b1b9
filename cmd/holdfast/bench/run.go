package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/open"
)

// Options say what to measure. URL and Store are required.
type Options struct {
	Store *open.Store // which the caller has opened, and closes
	URL   string      // of the same store: further clients have connections of their own

	Config   holdfast.Config // of each client
	Duration time.Duration   // of each workload: 3 s
	Count    int             // how often each workload runs: once
	Scenario *regexp.Regexp  // the names of the workloads to run: all

	// Say receives progress messages of one line for people. Nil: none.
	Say func(text string)
}

// Limits of Options.
const (
	MinDuration = 10 * time.Millisecond
	MaxDuration = time.Hour
	MaxCount    = 1000
)

// Exchanges with the store outside of a measurement are bounded: the first, and those at the end.
const (
	openLimit  = 15 * time.Second
	probeLimit = 5 * time.Second
	closeLimit = 3 * time.Second
)

// pageSize is how many names are listed at a time when they are removed.
const pageSize = 1000

// run is one Run.
type run struct {
	Options
	res    *Result
	prefix string
	floors map[int]time.Duration // by round
}

// Run measures a store. It returns what it has measured and the first error of a call: of the
// driver's errors, or the cause of ctx. After a workload the store must answer; if it does not, the
// remaining workloads are left out, and their rows say so. When ctx ends, Run ends at once, and the
// figures of the workload under way are dropped. It removes its names in the end, whatever happens.
// The error is ErrInvalid without a Result if the options are wrong.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Duration == 0 {
		o.Duration = 3 * time.Second
	}
	if o.Count == 0 {
		o.Count = 1
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	id := make([]byte, 4)
	_, _ = rand.Read(id) // it cannot fail
	r := &run{Options: o, prefix: "bench/" + hex.EncodeToString(id) + "/", floors: map[int]time.Duration{},
		res: &Result{Store: o.Store.Place, Duration: o.Duration, Count: o.Count}}
	if r.res.Store == "" {
		r.res.Store = o.Store.Name() + ":"
	}
	some := chosen(o.Scenario)
	for _, w := range some {
		r.res.Rows = append(r.res.Rows, &Row{Name: w.name, Title: w.title, Contended: w.contended()})
	}
	if err := r.describe(ctx, some); err != nil {
		return r.res, err
	}
	defer r.cleanUp(context.WithoutCancel(ctx))
	return r.res, r.all(ctx, some)
}

func (o *Options) check() error {
	switch {
	case o.Duration < MinDuration || o.Duration > MaxDuration:
		return fmt.Errorf("%w duration %v: allowed are %v to %v", holdfast.ErrInvalid, o.Duration, MinDuration, MaxDuration)
	case o.Count < 1 || o.Count > MaxCount:
		return fmt.Errorf("%w number of rounds %d: allowed are 1 to %d", holdfast.ErrInvalid, o.Count, MaxCount)
	case o.Scenario != nil && !Matches(o.Scenario):
		return fmt.Errorf("%w scenario %q: none of the workloads has such a name; they are %s", holdfast.ErrInvalid,
			o.Scenario, strings.Join(Names(), ", "))
	}
	return nil
}

// all runs the workloads. Each round runs each of them once, so that a disturbance affects all alike.
func (r *run) all(ctx context.Context, some []workload) (first error) {
	for round := range r.Count {
		for i := range some {
			w, row := &some[i], r.res.Rows[i]
			before := ""
			if r.Count > 1 {
				before = fmt.Sprintf("round %d of %d: ", round+1, r.Count)
			}
			r.Say(before + w.name + ": " + w.title)
			err := r.workload(ctx, w, row, round)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err == nil {
				continue
			}
			err = open.Redact(err, r.URL)
			if row.Err == nil {
				row.Err = err
			}
			if first == nil {
				first = fmt.Errorf("%s: %w", w.name, err)
			}
			if perr := r.probe(ctx); perr != nil {
				r.skip(i + 1)
				return first
			}
		}
	}
	r.res.Complete = first == nil
	return first
}

// errSkipped is the error of a row that did not run.
var errSkipped = errors.New("not measured: the store had failed before")

// skip notes that the rows from i on did not run.
func (r *run) skip(i int) {
	for _, row := range r.res.Rows[i:] {
		if len(row.Rounds) == 0 && row.Err == nil {
			row.Err = errSkipped
		}
	}
}

// describe learns the lease duration, and says what the store lacks.
func (r *run) describe(ctx context.Context, some []workload) error {
	bounded, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	c, err := holdfast.New(bounded, r.Store, &r.Config)
	if ctx.Err() != nil && err != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return open.Redact(err, r.URL)
	}
	r.res.TTL = c.TTL()
	if err := closeClient(c); err != nil {
		return open.Redact(err, r.URL)
	}
	if r.Store.Place == "" {
		r.note("this store is the memory of this process: no other process shares it")
	}
	if reason := r.Store.Polling(); reason != "" {
		r.note("waiters ask the store every 5 to 50 ms because it cannot wake them: " + reason)
	}
	if !r.Store.Kinds().Blocks {
		text := "this store has no passes within a client: each hand-over among its goroutines is an exchange"
		if s := r.Store.Kinds().Setting; s != "" {
			text += " (" + s + ")"
		}
		r.note(text)
	}
	took := time.Duration(len(some)*r.Count) * r.Duration
	r.Say(fmt.Sprintf("measuring %s for about %v, with names under %s", r.res.Store,
		(took + took/10).Round(100*time.Millisecond), r.prefix))
	return nil
}

func (r *run) note(text string) { r.res.Notes = append(r.res.Notes, text) }

// probe returns an error if the store does not answer.
func (r *run) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	_, err := r.Store.Inspect(ctx, r.prefix+exchange)
	return err
}

// workload runs one workload, and adds its figures to row.
func (r *run) workload(ctx context.Context, w *workload, row *Row, round int) error {
	clients, err := r.open(ctx, w.clients)
	defer clients.close()
	if err != nil {
		row.Errors++
		return err
	}
	m := newWindow(w)
	name := func(i int) string { return fmt.Sprintf("%s%s/%d", r.prefix, w.name, i%max(w.names, 1)) }
	mutexes := make([]*holdfast.Mutex, w.loops)
	for i := range mutexes {
		if w.clients > 0 {
			mutexes[i] = clients[i%w.clients].c.Mutex(name(i))
		}
	}
	mutex := func(i int) *holdfast.Mutex { return mutexes[i] }
	do := m.pair(mutex)
	switch {
	case w.names == 0:
		do = m.read(r.Store, r.prefix+exchange)
	case w.contended():
		do = m.handOver(mutex)
	}
	took := m.measure(ctx, r.Duration, do, clients.close)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	figures, h, failed, err := m.figures(took, r.floors[round])
	if w.names == 0 {
		r.floors[round] = figures.P50
	}
	row.Errors += failed
	if h.N > 0 {
		row.Rounds = append(row.Rounds, figures)
		row.Latency.Merge(h)
	}
	if err == nil {
		if err = r.probe(ctx); err != nil { // else a call may wait for the store, and has not failed yet
			row.Errors++
		}
	}
	return err
}

// opened is a client, and its store if it has one of its own.
type opened struct {
	c     *holdfast.Client
	store *open.Store // nil: the caller's
}

type openedClients []opened

// open opens clients. Each has connections of its own, as clients on other machines have; the first
// has those of the caller's store. Only the memory of this process has none. The caller closes what
// was opened, also after an error.
func (r *run) open(ctx context.Context, n int) (all openedClients, err error) {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	for range n {
		var own *open.Store
		store := r.Store
		if len(all) > 0 && r.Store.Place != "" {
			if own, err = open.Open(ctx, r.URL); err != nil {
				return all, fmt.Errorf("client %d of %d: %w", len(all)+1, n, err)
			}
			store = own
		}
		c, err := holdfast.New(ctx, store, &r.Config)
		if err != nil {
			if own != nil {
				_ = own.Close()
			}
			return all, fmt.Errorf("client %d of %d: %w", len(all)+1, n, err)
		}
		all = append(all, opened{c, own})
	}
	return all, nil
}

// close ends the clients and with them all their leases and waits. It may be called more than once.
// What it cannot release expires.
func (all openedClients) close() {
	var group sync.WaitGroup
	for _, o := range all {
		group.Go(func() {
			_ = closeClient(o.c)
			if o.store != nil {
				_ = o.store.Close()
			}
		})
	}
	group.Wait()
}

func closeClient(c *holdfast.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	return c.Close(ctx)
}

// cleanUp removes what is still taken. All clients have ended, so that is what they could not
// release.
func (r *run) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	list, err := r.Store.List(ctx, r.prefix, "", pageSize)
	for _, rec := range list {
		for _, h := range rec.Holders {
			if berr := r.Store.Break(ctx, rec.Name, h.Token); !errors.Is(berr, driver.ErrGone) {
				err = errors.Join(err, berr)
			}
		}
	}
	if err != nil {
		r.note(fmt.Sprintf("what is left under %s expires within %v: %v", r.prefix, r.res.TTL, open.Redact(err, r.URL)))
	}
}
