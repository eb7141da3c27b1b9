package holdfast

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Notice is what an operator did about a grant, or asked of its holder.
type Notice struct {
	By     Holder // Host, PID, User and Program of the operator
	Reason string // the operator's words; may be empty
	At     time.Time
}

// String returns one line for people: holdfast (ops@laptop:4211): "stuck since three".
func (n *Notice) String() string {
	if n.Reason == "" {
		return n.By.who()
	}
	return fmt.Sprintf("%s: %q", n.By.who(), n.Reason)
}

// Revoke asks the holder of the grant with this token, which Inspect shows, to release it. Nothing is
// taken away: the holder goes on until it releases. A holder of this package learns of it within a
// third of its TTL, by Revoked, if it can read the store; other programs that share the store do not.
// A holder is told of one request only: the first, or the last of those that it reads together. History
// has all of them. A store keeps the last 250 requests, of all names. reason is for people, at most
// 1,024 bytes. [Client.Break] takes a lock away.
//
// Revoke makes three exchanges. Errors: ErrGone if no grant has this token; ErrUnrecorded if the
// holder has been asked and the history does not show it; ErrInvalid, ErrUnavailable, ErrUncertain,
// ErrRefused, ErrDamaged.
func (c *Client) Revoke(ctx context.Context, name string, token uint64, reason string) error {
	err := c.checkName(name)
	if err == nil {
		err = c.revoke(ctx, name, token, reason)
	}
	if err != nil {
		return &Error{Op: "revoke", Name: name, Err: missing(explain(ctx, err), "no grant has token %d", token)}
	}
	return nil
}

func (c *Client) revoke(ctx context.Context, name string, token uint64, reason string) error {
	t := historyText{Event: HistoryAsked, Name: name, Token: token, By: operator(c.self), Reason: reason,
		Nonce: strings.ToLower(rand.Text()[:8])}
	if err := t.check(); err != nil {
		return err
	}
	rec, err := c.inspect(ctx, name)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(rec.Holders, func(h driver.Holder) bool { return h.Token == token && !h.Kept }) {
		return ErrGone
	}
	began := c.coarseNow()
	if err := c.addNow(ctx, "", maxRequests, t); err != nil {
		return err
	}
	t.Name = ""
	if err := c.addNow(ctx, name, driver.MaxHistory, c.since(t, began)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnrecorded, err)
	}
	return nil
}

// operator returns what is shown of a client that breaks or revokes.
func operator(self driver.Info) driver.Info {
	return driver.Info{Host: self.Host, PID: self.PID, User: self.User, Program: self.Program}
}

// maxRequests is how many requests to holders the store keeps, of all names.
const maxRequests = 250

// readRequests reads what operators ask of holders, and passes it on to the leases. Requests are
// hints: one that cannot be read costs only time.
func (c *Client) readRequests(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.limit())
	defer cancel()
	raw, err := c.store.History(ctx, "")
	if err != nil {
		return
	}
	type grant struct {
		name  string
		token uint64
	}
	asked := map[grant]*Notice{}
	now := time.Now()
	for _, r := range raw {
		var t historyText
		if json.Unmarshal([]byte(r.Text), &t) == nil && t.Event == HistoryAsked {
			e := t.entry(now.Add(-r.Age))
			asked[grant{t.Name, t.Token}] = &Notice{e.By, e.Reason, e.At}
		}
	}
	if len(asked) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range slices.Clone(c.leases) {
		switch n := asked[grant{l.req.Name, l.grantToken}]; {
		case n == nil:
		case l.kept == idleGrant:
			c.leave(l.cohort)
		default:
			l.markRevoked(n)
		}
	}
}

// markRevoked notes that the holder of l was asked to release it. Called with c.mu held.
func (l *Lease) markRevoked(n *Notice) {
	if l.notice == nil && l.ended == nil {
		l.notice = n
		for r := range l.onRevoke {
			r.signal()
		}
		l.onRevoke = nil
		if o := l.c.observer; o != nil && o.Revoked != nil && l.isOwn() {
			l.c.observerCalls.add(func() { o.Revoked(l.req.Name, l.token, *n) })
		}
	}
	for b := range l.inner {
		b.markRevoked(n)
	}
}

// Revocation returns who has asked the holder to release the lock, and why; nil if nobody has, as far
// as this client knows. See Client.Revoke.
func (l *Lease) Revocation() *Notice {
	if l.usable("use") != nil {
		return nil
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.notice
}

// signalRevoked signals r once the holder has been asked to release l: at once if it has been.
func (l *Lease) signalRevoked(r *revocation) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	switch {
	case l.notice != nil:
		r.signal()
	case l.ended == nil:
		if l.onRevoke == nil {
			l.onRevoke = map[*revocation]struct{}{}
		}
		l.onRevoke[r] = struct{}{}
	}
}

// Revoked returns a channel that is closed when an operator asks the holder of a lease that ctx
// carries to release it (Client.Revoke). Work that can stop early should then stop and release. The
// lease goes on until then, and so does ctx. Revocation has the operator's words. Without a lease in
// ctx the channel is nil.
func Revoked(ctx context.Context) <-chan struct{} {
	x, ok := ctx.Value(leaseKey{}).(*leaseContext)
	if !ok {
		return nil
	}
	return x.revoked()
}

// Revocation returns the first request to release a lease that ctx carries, innermost first; nil if
// there is none.
func Revocation(ctx context.Context) *Notice {
	for l := range leases(ctx) {
		if n := l.Revocation(); n != nil {
			return n
		}
	}
	return nil
}

// revocation is the channel of one context.
type revocation struct {
	once   sync.Once
	done   chan struct{}
	closed sync.Once
}

func (r *revocation) signal() { r.closed.Do(func() { close(r.done) }) }

func (x *leaseContext) revoked() <-chan struct{} {
	r := &x.revocation
	r.once.Do(func() {
		r.done = make(chan struct{})
		for l := range leases(x) {
			l.signalRevoked(r)
		}
		context.AfterFunc(x, func() { // a long lease would otherwise collect the contexts of its work
			for l := range leases(x) {
				l.c.mu.Lock()
				delete(l.onRevoke, r)
				l.c.mu.Unlock()
			}
		})
	})
	return r.done
}

// breakGrant ends a grant and keeps who did it, and why.
func (c *Client) breakGrant(ctx context.Context, name string, token uint64, reason string) error {
	t := historyText{Event: HistoryBroken, Token: token, By: operator(c.self), Reason: reason}
	if err := t.check(); err != nil {
		return err
	}
	began := c.coarseNow()
	if err := c.repeatChange(ctx, func() error { return c.store.Break(ctx, name, token) }); err != nil {
		return err
	}
	if err := c.addNow(ctx, name, driver.MaxHistory, c.since(t, began)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnrecorded, err)
	}
	return nil
}
