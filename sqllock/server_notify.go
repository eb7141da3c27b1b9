package sqllock

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/sqllock/internal/samehost"
)

// wakeups are notifications for the waiters that got grants: of this Server, of others on this host,
// and of the rest.
type wakeups struct {
	here, near, abroad []Ring
}

// add adds a record's new grants.
func (b *Server) add(n *wakeups, r *record) {
	for _, g := range r.grants {
		server, session, _ := strings.Cut(g.Session, ".")
		b.sort(n, Ring{Name: r.name, Server: server, Session: session, ID: g.ID, Token: g.Token})
	}
}

func (b *Server) sort(n *wakeups, r Ring) {
	switch {
	case r.Server == b.id:
		n.here = append(n.here, r)
	case slices.Contains(b.near(), r.Server):
		n.near = append(n.near, r)
	default:
		n.abroad = append(n.abroad, r)
	}
}

// vague returns the same wakeups without tokens, for grants that are uncertain: all waiters ask
// again.
func (n *wakeups) vague() *wakeups {
	v := &wakeups{slices.Clone(n.here), slices.Clone(n.near), slices.Clone(n.abroad)}
	for _, rings := range [][]Ring{v.here, v.near, v.abroad} {
		for i := range rings {
			rings[i].Token = 0
		}
	}
	return v
}

// notify sends the wakeups, after the commit. Whoever cannot be reached on this host is woken by the
// SQL server.
func (b *Server) notify(n *wakeups) {
	for _, r := range n.here {
		b.received(r)
	}
	missed := b.tell(n.near)
	if !b.d.Transactions().Tells { // otherwise Announce and Save have sent them
		missed = append(missed, n.abroad...)
	}
	if len(missed) > 0 {
		b.wake(missed)
	}
}

// handed notifies the waiter that a statement has handed a lock to. If it is of a Server on this host,
// the statement has left that to this.
func (b *Server) handed(r Ring) {
	switch r.Server {
	case b.id:
		b.notify(&wakeups{here: []Ring{r}})
	case "":
		b.notify(&wakeups{abroad: []Ring{r}})
	default:
		b.notify(&wakeups{near: []Ring{r}})
	}
}

// Sealer is an optional interface of a Bell whose notifications prove that a lock user has sent them.
type Sealer interface {
	// Seal adds the proof to a text for a Server. False: it cannot now.
	Seal(server, text string) (sealed string, ok bool)

	// Unseal returns the text of a notification to this Server. False: the proof is wrong.
	Unseal(sealed string) (text string, ok bool)
}

// near returns the Servers on this host whose waiters this one wakes itself.
func (b *Server) near() []string {
	if b.bellForSockets() == nil {
		return nil
	}
	return b.socket.Others()
}

// bellForSockets returns the Bell; nil: sockets are not used. Where waiters poll, they wake nobody.
func (b *Server) bellForSockets() Bell {
	if b.cfg.NoSockets {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reason != "" {
		return nil
	}
	return b.bell
}

// tell sends Rings to Servers on this host, and returns those that it could not send. One message
// has all Rings of a Server that fit, since a socket may have room for only ten.
func (b *Server) tell(rings []Ring) (missed []Ring) {
	bell := b.bellForSockets()
	for len(rings) > 0 {
		var msg []byte
		server, n := rings[0].Server, 0
		for n < len(rings) && rings[n].Server == server {
			text, ok := RingText(rings[n]), bell != nil
			if s, seals := bell.(Sealer); seals {
				text, ok = s.Seal(server, text)
			}
			if !ok || len(msg)+len(text)+1 > samehost.MaxMessage {
				break
			}
			msg = append(append(msg, text...), '\n')
			n++
		}
		if n == 0 || !b.socket.Send(server, msg) {
			n = max(n, 1)
			missed = append(missed, rings[:n]...)
		}
		rings = rings[n:]
	}
	return missed
}

// message handles a message from a Server on this host, or from any other process of this user.
func (b *Server) message(msg []byte) {
	bell := b.bellForSockets()
	if bell == nil {
		return
	}
	s, seals := bell.(Sealer)
	for line := range bytes.Lines(msg) {
		text, ok := strings.CutSuffix(string(line), "\n")
		if ok && seals {
			text, ok = s.Unseal(text)
		}
		r, valid := ParseRing(text)
		switch {
		case !ok || !valid:
		case seals:
			b.received(r)
		default:
			b.hint(r)
		}
	}
}

// maxAhead is how far a token may be ahead of this host's clock.
const maxAhead = 24 * time.Hour

// hint handles a notification that anybody could have sent who may act as this user: it gives nothing
// back. A token a day ahead of the clock is forged or comes from a wrong clock, so the waiter only
// asks again.
func (b *Server) hint(r Ring) {
	if r.ID == AnyID {
		b.lookSoon()
		return
	}
	if r.Token > uint64(max(time.Now().Add(maxAhead).UnixMicro(), 0)) {
		r.Token = 0
	}
	b.waiters.Notify(r.ID, r.Token)
}

// AnyID stands for an ID that the sender of a notification does not know.
const AnyID = "-"

// lookSoon looks in the background, once for all calls meanwhile.
func (b *Server) lookSoon() {
	if b.looks.Add(1) > 1 {
		return
	}
	b.background(func() {
		for done := false; !done && b.ctx.Err() == nil; {
			n := b.looks.Load()
			_ = b.look(b.ctx)
			done = b.looks.CompareAndSwap(n, 0)
		}
	})
}

// RingText is the text of a notification: "id token name", the name in hexadecimal digits.
func RingText(r Ring) string { return fmt.Sprintf("%s %d %x", r.ID, r.Token, r.Name) }

// ParseRing reads a RingText.
func ParseRing(text string) (r Ring, ok bool) {
	f := strings.Split(text, " ")
	if len(f) != 3 || f[0] == "" {
		return r, false
	}
	token, err := strconv.ParseUint(f[1], 10, 63)
	name, wrong := hex.DecodeString(f[2])
	return Ring{ID: f[0], Token: token, Name: string(name)}, err == nil && wrong == nil
}

// lookAgain looks for what the waiters here were not told: the process that handed over may have been
// killed after its commit. Without sockets that commit notifies, and Bells look by themselves. Nobody
// looks for a request that has waited for less than a pause.
func (b *Server) lookAgain() (waiting bool) {
	if !b.d.Transactions().Tells {
		return false
	}
	before := b.pending
	b.pending = b.waiting()
	if Overlap(before, b.pending) {
		ctx, cancel := context.WithTimeout(b.ctx, answerLimit)
		defer cancel()
		_ = b.look(ctx) // ignore the error: the next look may succeed
	}
	return len(b.pending) > 0
}

// Overlap reports whether two results of BellConfig.Waiting have a request in common.
func Overlap(before, now map[string]Waiters) bool {
	for name, w := range now {
		was := before[name]
		for _, id := range slices.Concat(w.Alone, w.Group, w.Latch) {
			if slices.Contains(was.Alone, id) || slices.Contains(was.Group, id) || slices.Contains(was.Latch, id) {
				return true
			}
		}
	}
	return false
}
