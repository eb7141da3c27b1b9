// Package lab runs lock algorithms that are widely used on Redis and fail. It runs each on a real
// server in the order of events that breaks it, and then holdfast in the same order.
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
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/open"
	"github.com/holdfast-lock/holdfast/redislock"
)

// rowLimit bounds one part of a row. Each needs less than a tenth of it.
const rowLimit = time.Minute

// Lab runs rows at one server.
type Lab struct {
	url        string
	userServer bool // the server is the user's
	prefix     string
	own        *Server
}

// New returns a lab. If url is empty it starts a redis-server, which Close ends. Otherwise it uses
// the server there: under a prefix of its own, with an expiry on every key, and it removes what it
// has written. Rows that kill servers always start their own.
//
// Errors: driver.ErrUnavailable (with what to install, if redis-server is missing),
// driver.ErrRefused, driver.ErrInvalid.
func New(ctx context.Context, url string) (*Lab, error) {
	l := &Lab{url: url, userServer: url != "", prefix: "hf:lab:" + strings.ToLower(rand.Text()[:10]) + ":"}
	if url == "" {
		s, err := Start(ctx)
		if err != nil {
			return nil, err
		}
		l.own, l.url = s, s.URL()
		return l, nil
	}
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

// Close ends the server, if the lab has started it.
func (l *Lab) Close() {
	if l.own != nil {
		l.own.Close()
	}
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
	o.Unsound = l.part(ctx, r, "u:", r.unsound)
	o.Sound = l.part(ctx, r, "h:", r.sound)
	o.judge()
	return o
}

func (l *Lab) part(ctx context.Context, r Row, name string, f func(*scenario)) Part {
	ctx, cancel := context.WithTimeoutCause(ctx, rowLimit, fmt.Errorf("it did not end within %v", rowLimit))
	defer cancel()
	p := &scenario{
		ctx: ctx, rec: newRecord(l.url), url: l.url, prefix: l.prefix + r.ID + ":" + name, userServer: l.userServer,
		job: r.job, engine: redisEngine{}, at: &resource{},
		keys: map[string]bool{}, endless: map[string]bool{}, tools: map[string]redislock.Conn{},
	}
	err := context.Cause(ctx)
	if err == nil {
		err = p.run(f)
	}
	return Part{Record: p.rec, Rate: p.rate, Err: open.Redact(err, l.url)}
}
