// Package lab runs lock algorithms that are widely used and fail. It runs each on a real server in
// the order of events that breaks it, and then holdfast in the same order.
//
// A [Row] is an algorithm with its schedule. A schedule leaves nothing to chance: clients stop at
// named steps (client.go), and the lab controls the network between a client and the server
// (link.go). It skips time at the server and on the clock of the record (scenario.pass) instead of
// waiting. A [Record] has the events; the timeline, the page and the verdict of package history are
// derived from it.
package lab

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/open"
	"github.com/holdfast-lock/holdfast/redislock"
)

// rowLimit bounds one part of a row. Each needs less than a tenth of it.
const rowLimit = time.Minute

// Lab runs rows.
type Lab struct {
	url    string // of the user's Redis server; empty: the lab starts all servers
	prefix string
	hosts  map[Store]*lazyHost
}

// New returns a lab. If url is empty it starts a server for the first row of each store, and Close
// ends them. Otherwise it uses the Redis server there: under a prefix of its own, with an expiry on
// every key, and it removes what it has written. Rows that kill servers always start their own.
//
// Errors: driver.ErrUnavailable, driver.ErrRefused, driver.ErrInvalid.
func New(ctx context.Context, url string) (*Lab, error) {
	l := &Lab{url: url, prefix: "hf:lab:" + strings.ToLower(rand.Text()[:10]) + ":", hosts: map[Store]*lazyHost{}}
	for s := range starters {
		l.hosts[s] = &lazyHost{}
	}
	if url == "" {
		return l, nil
	}
	l.hosts[Redis].host = &redisHost{url: url}
	if scheme, _, _ := strings.Cut(url, ":"); strings.Contains(scheme, "sentinel") ||
		strings.Contains(scheme, "cluster") || !strings.Contains(scheme, "redis") && scheme != "unix" {
		return nil, fmt.Errorf("%w store URL: the lab needs one Redis server: redis://, rediss://, redis+unix:// or unix://",
			driver.ErrInvalid)
	}
	c, err := dial(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if _, err := askConn(ctx, c, "PTTL", l.prefix); err != nil {
		return nil, err
	}
	return l, nil
}

// Close ends the servers that the lab has started.
func (l *Lab) Close() {
	for _, h := range l.hosts {
		if h.host != nil {
			h.host.Close()
		}
	}
}

// LeftOut is why rows of a store cannot run.
type LeftOut struct {
	Store Store
	Rows  []string // their IDs
	Err   error    // driver.ErrUnavailable, with what to install
}

// Runnable returns the rows that can run here, and why the others cannot: their server is not
// installed, or the lab has a URL of another store.
func (l *Lab) Runnable(rows []Row) (can []Row, left []LeftOut) {
	why := map[Store]error{}
	for s, starter := range starters {
		switch {
		case l.url == "":
			why[s] = starter.missing()
		case s != Redis:
			why[s] = fmt.Errorf("%w: --store names a Redis server; the lab runs these rows without --store",
				driver.ErrUnavailable)
		}
	}
	for _, r := range rows {
		err := why[r.Store]
		if err == nil {
			can = append(can, r)
			continue
		}
		i := slices.IndexFunc(left, func(o LeftOut) bool { return o.Store == r.Store })
		if i < 0 {
			i, left = len(left), append(left, LeftOut{Store: r.Store, Err: err})
		}
		left[i].Rows = append(left[i].Rows, r.ID)
	}
	return can, left
}

// parallelRows is how many rows run at a time: they mostly wait for leases to end.
const parallelRows = 8

// Run runs rows in parallel and calls each with the outcomes, in the order of rows. Rows that
// measure run alone. It ends early, with ctx's error, if ctx ends.
func (l *Lab) Run(ctx context.Context, rows []Row, each func(*Outcome) error) error {
	done := make([]chan *Outcome, len(rows))
	slots := make(chan struct{}, parallelRows)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range rows {
		done[i] = make(chan *Outcome, 1)
	}
	wg.Go(func() {
		for i, r := range rows {
			if r.Class == Cost { // no other row may run meanwhile
				for range parallelRows {
					slots <- struct{}{}
				}
				done[i] <- l.one(ctx, r)
				for range parallelRows {
					<-slots
				}
				continue
			}
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				done[i] <- l.one(ctx, r)
			})
		}
	})
	for i := range rows {
		o := <-done[i]
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := each(o); err != nil {
			return err
		}
	}
	return nil
}

// one runs both parts of a row.
func (l *Lab) one(ctx context.Context, r Row) *Outcome {
	o := &Outcome{Row: r}
	h := l.hosts[r.Store]
	h.once.Do(func() {
		if h.host == nil {
			h.host, h.err = starters[r.Store].start(ctx)
		}
	})
	if h.err != nil {
		o.Unsound = Part{Record: newRecord(""), Err: h.err}
		o.Sound = o.Unsound
		return o
	}
	o.Unsound = l.part(ctx, h.host, r, "u:", r.Setup, r.unsound)
	o.Sound = l.part(ctx, h.host, r, "h:", nil, r.sound)
	o.judge()
	return o
}

func (l *Lab) part(ctx context.Context, h host, r Row, name string, setup []string, f func(*scenario)) Part {
	ctx, cancel := context.WithTimeoutCause(ctx, rowLimit, fmt.Errorf("it did not end within %v", rowLimit))
	defer cancel()
	p := &scenario{
		ctx: ctx, rec: newRecord(""), prefix: l.prefix + r.ID + ":" + name, job: r.job, at: &resource{},
		keys: map[string]bool{}, endless: map[string]bool{}, tools: map[string]redislock.Conn{},
	}
	err := context.Cause(ctx)
	if err == nil {
		err = p.run(func(p *scenario) {
			var err error
			p.engine, err = h.engine(p, setup)
			p.must(err)
			p.rec.start = time.Now()
			f(p)
		})
	}
	return Part{Record: p.rec, Rate: p.rate, Err: open.Redact(err, p.url)}
}
