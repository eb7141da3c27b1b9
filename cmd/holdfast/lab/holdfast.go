package lab

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// The clients of holdfast, under the same schedules.

// soundTTL is the TTL of their leases, where a schedule waits for renewals or the end of a lease. Time
// is not skipped here: the library runs as in any program.
const soundTTL = 3 * time.Second

// longTTL is the TTL of a client that must not lose its lease, also if the machine stands still for seconds.
const longTTL = 2 * soundTTL

// user is a program that uses the library.
type user struct {
	*scenario
	name string
	net  network // nil if the lab does not control it
	link *link   // the same, of a Redis server
	c    *holdfast.Client
	ttl  time.Duration

	attempts int
	id       atomic.Value  // string: of the last attempt
	waiting  chan struct{} // gets a value when the user is in the queue
	renewed  chan error    // gets the outcome of each renewal
}

// user returns a client of the library.
func (p *scenario) user(name string) *user { return p.userFor(name, soundTTL) }

// steady returns a client for a schedule that waits for no renewal and no end of a lease. Its requests
// and its leases may take long, as on a busy machine.
func (p *scenario) steady(name string) *user { return p.userFor(name, holdfast.DefaultTTL) }

func (p *scenario) userFor(name string, ttl time.Duration) *user {
	b, n := p.engine.backend(p, ttl)
	return p.userOn(name, ttl, b, n)
}

func (p *scenario) userWith(name string, ttl time.Duration, cfg redislock.Config) *user {
	cfg.Prefix = p.prefix
	l := p.connect(p.url)
	return p.userOn(name, ttl, redislock.New(l, &cfg), l)
}

// userOn returns a client on a backend; n is the network in between, if the lab controls it.
func (p *scenario) userOn(name string, ttl time.Duration, b driver.Backend, n network) *user {
	l, _ := n.(*link)
	u := &user{scenario: p, name: name, ttl: ttl, net: n, link: l,
		waiting: make(chan struct{}, 16), renewed: make(chan error, 256)}
	var err error
	u.c, err = holdfast.New(p.ctx, b, &holdfast.Config{TTL: ttl, Program: "lab " + name, Observer: &holdfast.Observer{
		Waiting: func(holdfast.Waiting) { notify(u.waiting) },
		Renewed: func(n int, took time.Duration, err error) {
			if id := u.id.Load(); err == nil && n > 0 && id != nil {
				p.rec.addFormal(history.Event{Kind: history.Renewed, Client: name, ID: id.(string), Name: p.job.lock,
					From: p.rec.now() - int64(took)})
			}
			select {
			case u.renewed <- err:
			default:
			}
		},
	}})
	p.must(err)
	p.cleanup = append(p.cleanup, func() {
		// The close of a dead or disconnected client fails; closing its link ends its requests.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if u.net != nil && u.net.current() != passing {
			_ = u.net.Close()
		}
		_ = u.c.Close(ctx)
	})
	return u
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// grant is a lease of a user.
type grant struct {
	*holdfast.Lease
	u   *user
	id  string
	ctx context.Context // ends with the lease
	end chan struct{}   // closed when the loss is recorded, or the lease was released
}

// begins records an attempt.
func (u *user) begins(e history.Event) (id string) {
	u.attempts++
	id = fmt.Sprintf("%s%d", u.name, u.attempts)
	u.id.Store(id)
	e.Kind, e.Client, e.ID, e.Name, e.TTL = history.Acquire, u.name, id, u.job.lock, u.ttl
	u.rec.addFormal(e)
	return id
}

// locks takes the lock, and waits for it if necessary.
func (u *user) locks() *grant {
	id, from := u.begins(history.Event{Wait: true}), u.rec.now()
	l, err := u.c.Mutex(u.job.lock).Lock(u.ctx)
	return u.result("Lock", id, l, err, from)
}

// tries takes the lock if it is free.
func (u *user) tries() *grant {
	id, from := u.begins(history.Event{}), u.rec.now()
	l, err := u.c.Mutex(u.job.lock).TryLock(u.ctx)
	return u.result("TryLock", id, l, err, from)
}

// locksFree is locks, and triesFree is tries, of a lock that must be free. The loss of the lease is
// recorded.
func (u *user) locksFree() *grant { return u.watched(u.locks()) }

func (u *user) triesFree() *grant { return u.watched(u.tries()) }

func (u *user) watched(g *grant) *grant {
	u.want(g != nil, "%s did not get a free lock", u.name)
	g.watch()
	return g
}

// acquires takes one of two permits, if one is free.
func (u *user) acquires() *grant {
	id, from := u.begins(history.Event{N: 1, Limit: 2, Mode: permits}), u.rec.now()
	l, err := u.c.Semaphore(u.job.lock, 2).TryAcquire(u.ctx, 1)
	return u.result("TryAcquire", id, l, err, from)
}

// result records the outcome of an attempt. It returns nil if another client has the lock or the
// store could not grant it.
func (u *user) result(call, id string, l *holdfast.Lease, err error, from int64) *grant {
	switch {
	case errors.Is(err, holdfast.ErrHeld):
		text := call + " → refused: another client holds the lock"
		var e *holdfast.Error
		if errors.As(err, &e) && e.Holder != nil {
			text = fmt.Sprintf("%s → refused: %q holds the lock", call, e.Holder.Program)
		}
		u.rec.add(Event{Lane: u.name, Kind: Refused, Text: text},
			history.Event{Kind: history.Refused, Client: u.name, ID: id, Name: u.job.lock, Text: "held by another",
				Result: history.Rejected})
		return nil
	// The library cancels what the attempt got, or it expires.
	case errors.Is(err, holdfast.ErrUncertain):
		u.rec.add(Event{Lane: u.name, Kind: Refused, Text: call + " → " + err.Error()},
			history.Event{Kind: history.Unanswered, Client: u.name, ID: id, Name: u.job.lock})
		return nil
	case errors.Is(err, holdfast.ErrUnavailable):
		u.rec.add(Event{Lane: u.name, Kind: Refused, Text: call + " → " + err.Error()},
			history.Event{Kind: history.Refused, Client: u.name, ID: id, Name: u.job.lock, Text: "unavailable"})
		return nil
	}
	u.must(err)
	g := &grant{Lease: l, u: u, id: id, ctx: l.Context(u.ctx), end: make(chan struct{})}
	u.secure()
	u.rec.add(Event{Lane: u.name, Kind: Does, Text: call, Answer: fmt.Sprintf("granted, token %d", l.Token())},
		history.Event{Kind: history.Granted, Client: u.name, ID: id, Name: u.job.lock, Token: l.Token(), From: from})
	return g
}

// watch records the loss of the lease as soon as the program can see it.
func (g *grant) watch() {
	u := g.u
	go func() {
		defer close(g.end)
		<-g.ctx.Done()
		if cause := context.Cause(g.ctx); errors.Is(cause, holdfast.ErrLost) {
			text := u.plain("the context of its lease is cancelled: " + cause.Error())
			u.rec.add(Event{Lane: u.name, Kind: Thinks, Text: text},
				history.Event{Kind: history.Lost, Client: u.name, ID: g.id, Name: u.job.lock, Token: g.Token()})
		}
	}()
}

// awaitLoss waits until the program knows that its lease has ended.
func (g *grant) awaitLoss() {
	select {
	case <-g.end:
	case <-g.u.ctx.Done():
		g.u.must(g.u.ctx.Err())
	}
}

// releases ends the lease and returns the error of Release.
func (g *grant) releases() error {
	u := g.u
	held := g.Err() == nil
	if held {
		u.rec.add(Event{Lane: u.name, Kind: Does, Text: "Release"},
			history.Event{Kind: history.Release, Client: u.name, ID: g.id, Name: u.job.lock, Token: g.Token()})
	}
	err := g.Release()
	e := Event{Lane: u.name, Kind: Thinks}
	formal := history.Event{Kind: history.Released, Client: u.name, ID: g.id, Name: u.job.lock, Token: g.Token(),
		Result: history.Accepted}
	switch {
	case errors.Is(err, holdfast.ErrLost):
		e.Text, e.Kind, formal.Result = u.plain("Release → "+err.Error()), Refused, history.Rejected
	case err != nil:
		e.Text, formal.Result = u.plain("Release → "+err.Error()), history.Unknown
	}
	switch {
	case err == nil: // nothing to show
		u.rec.addFormal(formal)
	case held:
		u.rec.add(e, formal)
	default:
		u.rec.add(e)
	}
	return err
}

// ends is releases, which must succeed.
func (g *grant) ends() {
	err := g.releases()
	g.u.want(err == nil, "%s's release failed: %v", g.u.name, err)
}

// finishes is the rest of a program without trouble: it works, and releases.
func (g *grant) finishes() {
	g.works()
	g.ends()
}

// dies ends a program as kill -9 does: none of its requests reaches the server after that.
func (u *user) dies(why string) {
	u.net.set(dead)
	u.rec.add(Event{Lane: u.name, Kind: Fault, Text: "crashes here: " + why},
		history.Event{Kind: history.Died, Client: u.name})
}

// queued is a waiting call of Lock.
type queued struct {
	id      string // of the attempt
	call    string
	done    chan struct{} // closed when it has ended
	grant   *grant
	failure any // the panic that ended it, as from must
}

// waits starts a Lock and returns when it is in the queue, or has ended.
func (u *user) waits() *queued { return u.waitsFor(driver.Exclusive) }

// waitsFor is waits for a lock in this mode.
func (u *user) waitsFor(m driver.Mode) *queued {
	q := u.asks(m)
	select {
	case <-u.waiting:
		u.rec.add(Event{Lane: u.name, Kind: Does, Text: q.call, Answer: "waits in the queue"},
			history.Event{Kind: history.Queued, Client: u.name, ID: q.id, Name: u.job.lock})
	case <-q.done: // the machine was so slow that the lock was free by then
	}
	return q
}

// asks starts a Lock.
func (u *user) asks(m driver.Mode) *queued {
	q := &queued{done: make(chan struct{}), id: u.begins(history.Event{Wait: true, Mode: m})}
	id, call, lock := q.id, "Lock", u.c.Mutex(u.job.lock).Lock
	if rw := u.c.RWMutex(u.job.lock); m == driver.Shared {
		call, lock = "RLock", rw.RLock
	}
	q.call = call
	go func() {
		defer close(q.done)
		defer func() { q.failure = recover() }()
		l, err := lock(u.ctx)
		q.grant = u.result(call, id, l, err, 0)
	}()
	return q
}

// granted waits for the end of a Lock.
func (q *queued) granted(p *scenario) *grant {
	<-q.done // it ends with the context of the scenario
	if q.failure != nil {
		panic(q.failure)
	}
	p.want(q.grant != nil, "a waiter did not get the lock")
	return q.grant
}

// works is read and write under the lease.
func (g *grant) works() {
	used, ok := g.u.reads(g.u.name, g.Token())
	switch {
	case !ok:
	case used < g.u.job.limit:
		g.u.writes(g.u.name, used, g.Token())
	default:
		g.u.rec.add(Event{Lane: g.u.name, Kind: Thinks, Text: "nothing is left to do"})
	}
}

// secure gives every key of the library an expiry of ten minutes if it has none, on a user's
// server.
func (p *scenario) secure() {
	if !p.userServer {
		return
	}
	c, err := p.labConn(p.url)
	p.must(err)
	_, err = c.Run(p.ctx, expireAll, p.known(), nil)
	p.must(err)
}

var expireAll = script(`
for _, k in ipairs(KEYS) do
  if redis.call('PTTL', k) == -1 then redis.call('PEXPIRE', k, 600000) end
end`)
