// Package lab plays the lock algorithms that are widely used on Redis and do not hold, each on a real server and in the order
// of events that breaks it, and then holdfast in the same order of events.
//
// A [Row] is an algorithm with its schedule. In a schedule nothing is left to luck: clients stop at named steps (client.go), the
// network between a client and the server is in the lab's hands (link.go), and time is skipped at the server and on the clock of
// the record (play.pass), never waited for. What happened is in a [Record]; the timeline, the page and the verdict of package
// history are derived from it.
package lab

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// rowLimit bounds one part of a row. None needs a tenth of it.
const rowLimit = time.Minute

// Lab runs rows at one server.
type Lab struct {
	url    string
	guest  bool // the server is the user's
	prefix string
	own    *Server
}

// New makes a lab. If url is empty it starts a redis-server, which Close ends; else it uses the server there: under a prefix of
// its own, with an expiry on every key, and removes what it has written. Rows that need servers of their own, because
// they kill them, start them in any case.
//
// Errors: driver.ErrUnavailable (with what to install, if redis-server is not there), driver.ErrRefused, driver.ErrInvalid.
func New(ctx context.Context, url string) (*Lab, error) {
	l := &Lab{url: url, guest: url != "", prefix: "hf:lab:" + strings.ToLower(rand.Text()[:10]) + ":"}
	if url == "" {
		s, err := Start(ctx)
		if err != nil {
			return nil, err
		}
		l.own, l.url = s, s.URL()
		return l, nil
	}
	if scheme, _, _ := strings.Cut(url, ":"); strings.Contains(scheme, "sentinel") || strings.Contains(scheme, "cluster") || !strings.Contains(scheme, "redis") && scheme != "unix" {
		return nil, fmt.Errorf("%w store URL: the lab needs one Redis server: redis://, rediss://, redis+unix:// or unix://", driver.ErrInvalid)
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

// side is how many rows are run side by side: they mostly wait for leases to end.
const side = 8

// Run runs rows side by side and calls each with the outcomes, in the order of rows. Rows that measure run alone.
// It ends early, with ctx's error, if ctx ends.
func (l *Lab) Run(ctx context.Context, rows []Row, each func(*Outcome) error) error {
	done := make([]chan *Outcome, len(rows))
	slots := make(chan struct{}, side)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range rows {
		done[i] = make(chan *Outcome, 1)
	}
	wg.Go(func() {
		for i, r := range rows {
			if r.Class == Cost { // nobody else may be at work meanwhile
				for range side {
					slots <- struct{}{}
				}
				done[i] <- l.one(ctx, r)
				for range side {
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

func (l *Lab) part(ctx context.Context, r Row, name string, f func(*play)) Part {
	ctx, cancel := context.WithTimeoutCause(ctx, rowLimit, fmt.Errorf("it did not end within %v", rowLimit))
	defer cancel()
	p := &play{
		ctx: ctx, rec: newRecord(), url: l.url, prefix: l.prefix + r.ID + ":" + name, guest: l.guest, job: r.job, at: &resource{},
		keys: map[string]bool{}, endless: map[string]bool{}, tools: map[string]redislock.Conn{},
	}
	err := context.Cause(ctx)
	if err == nil {
		err = p.run(f)
	}
	return Part{Record: p.rec, Rate: p.rate, Err: err}
}
