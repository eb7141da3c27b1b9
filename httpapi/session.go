package httpapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// session is what one program holds and waits for.
//
// A session is over at its deadline, or when the program ends it, and never lives again. Its mutex
// decides between its end, a grant that arrives, and a connection that ends. It is never held across
// an exchange with the store.
type session struct {
	s      *Server
	key    key
	id     string // shown to operators; no secret
	client string // the program's name for itself
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	deadline time.Time
	over     bool
	timer    *time.Timer
	requests map[uint64]*request // by number: live ones, and the last ones that have ended
	leases   map[key]*request    // by the secret of the lease, for as long as requests has them
	live     int                 // requests that wait or hold
	low      uint64              // the largest number that was forgotten
}

const (
	remembered  = 1000 // numbers of ended requests that a session remembers
	forgetsAt   = remembered + 250
	trustTenths = 9 // of the TTL, as the library trusts a lease
)

func newSession(s *Server, k key, client string, arrived time.Time) *session {
	ctx, cancel := context.WithCancel(context.Background())
	return &session{s: s, key: k, id: newSecret()[:8], client: client, ctx: ctx, cancel: cancel,
		deadline: arrived.Add(s.c.TTL()), requests: map[uint64]*request{}, leases: map[key]*request{}}
}

// arm starts the timer that ends the session.
func (ss *session) arm() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.timer = time.AfterFunc(ss.deadline.Sub(ss.s.now()), ss.expire)
}

// expire ends the session if it is past its deadline.
func (ss *session) expire() {
	ss.mu.Lock()
	if left := ss.deadline.Sub(ss.s.now()); !ss.over && left > 0 {
		ss.timer.Reset(left)
		ss.mu.Unlock()
		return
	}
	ss.mu.Unlock()
	ss.end(true)
}

// touch notes that the program has proved at arrived that it lives.
func (ss *session) touch(arrived time.Time) *problem {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.over || !ss.s.now().Before(ss.deadline) {
		return errSession
	}
	if d := arrived.Add(ss.s.c.TTL()); d.After(ss.deadline) && !ss.s.isDraining() {
		ss.deadline = d // the timer looks when it fires
	}
	return nil
}

// end ends the session, its waits and its leases, and returns how many leases it released. It
// returns when the store has answered about all of them. silent: the program has not ended it, so the
// log says what it left.
func (ss *session) end(silent bool) (released int) {
	ss.mu.Lock()
	if ss.over {
		ss.mu.Unlock()
		return 0
	}
	ss.over = true
	ss.timer.Stop()
	var leases []*request
	var attempts []*attempt
	for _, q := range ss.requests {
		if q.attempt != nil {
			attempts = append(attempts, q.attempt)
		}
		if q.lease != nil && q.final == nil {
			q.final = errSession
			leases = append(leases, q)
		}
	}
	ss.mu.Unlock()
	ss.cancel() // ends all waits
	if silent && len(leases) > 0 {
		ss.logSilent(leases)
	}
	var all sync.WaitGroup
	for _, q := range leases {
		ss.s.ends <- struct{}{}
		all.Go(func() {
			defer func() { <-ss.s.ends }()
			l := ss.leaseOf(q)
			if l == nil {
				return // a release that was under way has ended
			}
			// A lease ends with its session, so that it is over already is no news.
			if err := l.Release(); err != nil && !errors.Is(err, holdfast.ErrLost) &&
				!errors.Is(err, holdfast.ErrReleased) {
				ss.s.log("release at the end of a session", err)
			}
		})
	}
	all.Wait()
	for _, a := range attempts {
		<-a.done
	}
	ss.s.remove(ss) // last: Drain waits for it
	return len(leases)
}

// namesInLog is how many locks a line of the log names.
const namesInLog = 20

// logSilent says that the program has held these leases and sent nothing for a TTL. A server that
// drains gives no more trust, so there it is how programs end that do not hear of the drain.
func (ss *session) logSilent(leases []*request) {
	if ss.s.cfg.Logger == nil {
		return
	}
	slices.SortFunc(leases, func(a, b *request) int { return cmp.Compare(a.number, b.number) })
	names := make([]string, 0, min(len(leases), namesInLog))
	for _, q := range leases[:cap(names)] {
		names = append(names, q.name)
	}
	level, text := slog.LevelWarn, "httpapi: a program with locks sent nothing for a TTL; its session is over"
	if ss.s.isDraining() {
		level, text = slog.LevelInfo, "httpapi: a session with locks is over, because this server drains"
	}
	ss.s.cfg.Logger.Log(context.Background(), level, text, "session", ss.id, "client", ss.client, "locks", names,
		"count", len(leases))
}

// left returns for how long the session lasts without another request, as its program may trust
// that.
func (ss *session) left(now time.Time) time.Duration {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.over {
		return 0
	}
	return max(ss.deadline.Sub(now)-ss.s.c.TTL()*(10-trustTenths)/10, 0)
}

// trusted returns for how long the program may trust the lease, counted from when it sent the
// request that arrived at that time. See docs/adr/0014-http-api.md.
func (ss *session) trusted(l *holdfast.Lease, arrived time.Time) time.Duration {
	now := ss.s.now()
	left := min(l.Left(), ss.left(now))
	if left <= 0 {
		return 0
	}
	return now.Sub(arrived)*trustTenths/10 + left
}

// poll is the longest time for which a request waits before the program has to ask again.
func (ss *session) poll() time.Duration { return ss.s.c.TTL() / 3 }

// forget keeps the number of ended requests within bounds. Called with ss.mu held.
func (ss *session) forget() {
	if len(ss.requests)-ss.live < forgetsAt {
		return
	}
	var ended []uint64
	for n, q := range ss.requests {
		if q.final != nil {
			ended = append(ended, n)
		}
	}
	slices.Sort(ended)
	for _, n := range ended[:max(len(ended)-remembered, 0)] {
		delete(ss.leases, keyOf(ss.requests[n].secret))
		delete(ss.requests, n)
		ss.low = max(ss.low, n)
	}
}

// settle gives ended leases their final answer, so that they no longer count. Called with ss.mu held.
func (ss *session) settle() {
	for _, q := range ss.requests {
		ss.settleOne(q)
	}
}

// settleOne notes that the lease of q has ended by itself. Called with ss.mu held.
func (ss *session) settleOne(q *request) {
	if q.lease == nil || q.final != nil {
		return
	}
	if err := q.lease.Err(); err != nil {
		ss.finish(q, lostProblem(err))
	}
}

// finish gives q its final answer. Called with ss.mu held.
func (ss *session) finish(q *request, p *problem) {
	if q.final == nil {
		q.final = p
		ss.live--
		ss.forget()
	}
}

// byLease returns the request whose lease has this secret.
func (ss *session) byLease(secret string) (*request, *problem) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.over {
		return nil, errSession
	}
	if q := ss.leases[keyOf(secret)]; q != nil && secret != "" {
		ss.settleOne(q)
		return q, nil
	}
	return nil, &problem{status: http.StatusNotFound, Code: "unknown_lease",
		Message: "this session has no such lease; it may have ended long ago"}
}
