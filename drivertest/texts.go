package drivertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

// written are the hostile names, and texts of the greatest length that differ only at the end.
var written = append(slices.Clone(hostileNames),
	"Å", "\u212b", "A\u030a", "ﬁ", "fi", "\u200b", "a\u00a0", "a\t", "a\v", "a\u0085", "x-1", "c", "%c3%a9", "\x1b[31m",
	"\x7f", "\U0010ffff", "\ufffd",
	strings.Repeat("x", driver.MaxName), strings.Repeat("x", driver.MaxName-1)+"y",
	strings.Repeat("x", driver.MaxName-1)+" ",
	strings.Repeat("🔒", driver.MaxName/4), strings.Repeat("🔒", driver.MaxName/4-1)+"🔓",
	strings.Repeat("\x00", driver.MaxName), strings.Repeat("%", driver.MaxName),
)

var texts = []check{
	{"R9", "waiting for hostile names", "a waiter for a name is handed that name, whatever bytes it has, in each mode",
		func(e *env) {
			a, b := e.peerFor(2*longTTL), e.peerFor(2*longTTL)
			room := driver.MaxName - len(e.prefix)
			names := append(e.allowed(hostileNames), strings.Repeat("x", room), strings.Repeat("x", room-1)+"y",
				strings.Repeat("🔒", room/4), strings.Repeat("%", room), strings.Repeat("\x00", room), strings.Repeat("'", room))
			var holds []driver.Hold
			var waiters []*waiter
			for i, n := range names {
				r, behind := a.req(n), b.req(n)
				switch i % 3 {
				case 1:
					behind = b.shared(n)
				case 2:
					if !e.locksOnly() {
						r, behind = a.permits(n, 2, 3), b.permits(n, 2, 3)
					}
				}
				holds, waiters = append(holds, a.get(r)), append(waiters, b.joinQueue(behind))
			}
			for i, h := range holds {
				a.release(h)
				b.release(waiters[i].granted())
			}
		}},
	{"R9", "hostile prefixes", "a prefix of any bytes lists the names that begin with it, byte for byte", func(e *env) {
		a := e.peerFor(2 * longTTL)
		names := e.allowed(hostileNames)
		for _, n := range names {
			a.get(once(a.req(n)))
		}
		for _, prefix := range hostileNames {
			var want, got []string
			for _, n := range names {
				if strings.HasPrefix(n, prefix) {
					want = append(want, e.name(n))
				}
			}
			slices.Sort(want)
			list, err := a.List(e.ctx, e.name(prefix), "", 1000)
			if err != nil {
				e.Fatalf("List(%q): %v", prefix, err)
			}
			for _, rec := range list {
				got = append(got, rec.Name)
			}
			if !slices.Equal(got, want) {
				e.Errorf("List(%q) = %q\nwant %q", prefix, got, want)
			}
		}
	}},
	{
		"R5", "hostile IDs of latches",
		"any text of up to 512 bytes counts a latch down once, and no other text counts as the same", func(e *env) {
			a, b := e.client(nil), e.client(nil)
			name := e.name("l")
			left := int64(len(written))
			if _, err := a.Latch(name).Set(e.ctx, left+1); err != nil {
				e.Fatal(err)
			}
			counts := func(c *holdfast.Client, id string, want int64) {
				e.Helper()
				if got, err := c.Latch(name).CountDown(e.ctx, id); err != nil || got != want {
					e.Fatalf("CountDown(%.20q) = %d, %v; want %d", id, got, err, want)
				}
			}
			for _, id := range written {
				counts(a, id, left)
				left--
			}
			for _, id := range written {
				counts(b, id, left+1)
			}
		}},
	{"R5", "IDs of requests", "requests are told apart by their whole IDs, in the queue and as holders", func(e *env) {
		a, b := e.peer(), e.peer()
		base := strings.ToLower(rand.Text())[:12]
		digits := fmt.Sprintf("%016d", time.Now().UnixNano()%1e15)
		var reqs []*driver.Request
		var waiters []*waiter
		h := a.get(a.req("x"))
		for _, id := range []string{
			base, base + "-", base + "-1", base + "-10", base + "0", base + "00", "-" + base, "--" + base, "h" + base,
			"q" + base, "w" + base, "s" + base,
			digits, "0" + digits, digits + "0", "0x" + digits, digits + "e1", "null-" + base,
			base + strings.Repeat("z", 36), base + strings.Repeat("z", 35) + "y", base + strings.Repeat("-", 36),
		} {
			r := b.shared("x")
			r.ID = id
			reqs, waiters = append(reqs, r), append(waiters, b.joinQueue(r))
		}
		var want []string
		for _, r := range reqs {
			want = append(want, r.ID)
		}
		ids := func(of []driver.Holder) (all []string) {
			for _, h := range of {
				all = append(all, h.ID)
			}
			return all
		}
		if got := ids(b.inspect("x").Waiters); !slices.Equal(got, want) {
			e.Errorf("waiters are %q\nwant %q", got, want)
		}
		a.release(h)
		var holds []driver.Hold
		for _, w := range waiters {
			holds = append(holds, w.granted())
		}
		for len(holds) > 0 {
			if changes, err := b.Renew(e.ctx, holds); err != nil || len(changes) > 0 {
				e.Fatalf("Renew: %+v, %v", changes, err)
			}
			if got := ids(b.inspect("x").Holders); !slices.Equal(slices.Sorted(slices.Values(got)),
				slices.Sorted(slices.Values(want))) {
				e.Fatalf("holders are %q\nwant %q", got, want)
			}
			b.release(holds[0])
			holds, want = holds[1:], want[1:]
		}
	}},
	{"R9", "notes and labels", "a note and labels are shown unchanged, of holders and of waiters", func(e *env) {
		a, b := e.client(nil), e.client(nil)
		shown := func(h *holdfast.Holder, text string) {
			e.Helper()
			if h == nil || h.Note != text || h.Labels["k "+text] != text || h.Labels["key"] != "v "+text {
				e.Errorf("shown: %+v; want note and labels %.20q", h, text)
			}
		}
		said := func(text string) []holdfast.Option {
			return []holdfast.Option{holdfast.Note(text), holdfast.Label("k "+text, text), holdfast.Label("key", "v "+text)}
		}
		for i, text := range written {
			if len(text) > driver.MaxInfo/50 { // six times as long encoded, and in each note four times
				continue
			}
			name := e.name("x")
			l, err := a.Mutex(name, said(text)...).Lock(e.ctx)
			if err != nil {
				e.Fatalf("Lock with the note %.20q: %v", text, err)
			}
			if i%4 == 0 { // a waiter shows its own
				ctx, cancel := context.WithCancel(e.ctx)
				over := make(chan error, 1)
				go func() { _, err := b.Mutex(name, said(text)...).Lock(ctx); over <- err }()
				e.until("one waits", func() bool { return e.waiting(a, "x") == 1 })
				rec, err := a.Inspect(e.ctx, name)
				if err != nil || len(rec.Holders) != 1 || len(rec.Waiters) != 1 {
					e.Fatalf("Inspect = %+v, %v", rec, err)
				}
				shown(&rec.Holders[0], text)
				shown(&rec.Waiters[0], text)
				cancel()
				<-over
			} else {
				_, err := b.Mutex(name).TryLock(e.ctx)
				var he *holdfast.Error
				if !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &he) {
					e.Fatalf("TryLock: %v; want ErrHeld", err)
				}
				shown(he.Holder, text)
			}
			if err := l.Release(); err != nil {
				e.Fatal(err)
			}
		}
	}},
	{"R9", "the longest notes", "notes of each allowed length are shown whole, and longer ones refused", func(e *env) {
		a := e.client(nil)
		for _, letter := range []string{"x", "é", "🔒"} {
			var most string
			var l *holdfast.Lease
			for n := driver.MaxInfo / len(letter); l == nil; n-- {
				most = strings.Repeat(letter, n)
				got, err := a.Mutex(e.name(letter), holdfast.Note(most)).Lock(e.ctx)
				if err != nil && !errors.Is(err, holdfast.ErrInvalid) || n < driver.MaxInfo/len(letter)/2 {
					e.Fatalf("Lock with a note of %d bytes: %v", len(most), err)
				}
				l = got
			}
			rec, err := a.Inspect(e.ctx, e.name(letter))
			if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Note != most {
				e.Errorf("Inspect = %+v, %v; want a note of %d bytes", rec, err, len(most))
			}
			if err := l.Release(); err != nil {
				e.Error(err)
			}
		}
	}},
	{"R9", "refused texts", "a text that is not allowed as a name, ID or note is invalid, and the store is not asked",
		func(e *env) {
			conn := e.conn()
			a := e.clientOn(conn, nil)
			heal := conn.Cut() // so that nothing that reaches the store is answered
			defer heal()
			ctx, cancel := context.WithTimeout(e.ctx, patience)
			defer cancel()
			refused := func(what string, err error) {
				e.Helper()
				if !errors.Is(err, holdfast.ErrInvalid) {
					e.Errorf("%s: %v; want ErrInvalid", what, err)
				}
			}
			for _, name := range []string{"", strings.Repeat("x", driver.MaxName+1), "\xff", "a\xc3", "\xed\xa0\x80",
				"\xc0\x80"} {
				for what, take := range map[string]func() (*holdfast.Lease, error){
					"Lock":         func() (*holdfast.Lease, error) { return a.Mutex(name).Lock(ctx) },
					"TryLock":      func() (*holdfast.Lease, error) { return a.Mutex(name).TryLock(ctx) },
					"RWMutex.Lock": func() (*holdfast.Lease, error) { return a.RWMutex(name).Lock(ctx) },
					"RLock":        func() (*holdfast.Lease, error) { return a.RWMutex(name).RLock(ctx) },
					"Acquire":      func() (*holdfast.Lease, error) { return a.Semaphore(name, 2).Acquire(ctx, 1) },
					"Campaign":     func() (*holdfast.Lease, error) { return a.Election(name).Campaign(ctx) },
				} {
					_, err := take()
					refused(fmt.Sprintf("%s of %.20q", what, name), err)
				}
				_, err := holdfast.LockAll(ctx, a.Mutex(e.name("good")), a.Mutex(name))
				refused("LockAll", err)
				_, err = a.OnlyOne(ctx, name, time.Minute, func(context.Context) error { return nil })
				refused("OnlyOne", err)
				l := a.Latch(name)
				_, err = l.Set(ctx, 1)
				refused("Set", err)
				_, err = l.CountDown(ctx, "id")
				refused("CountDown", err)
				refused("Wait", l.Wait(ctx))
				refused("Remove", l.Remove(ctx))
				_, err = a.Inspect(ctx, name)
				refused("Inspect", err)
				refused("Break", a.Break(ctx, name, 1, ""))
				refused("SetLimit", a.SetLimit(ctx, name, 1))
			}
			for _, id := range []string{strings.Repeat("x", driver.MaxName+1), "\xff", "a\xc3"} {
				_, err := a.Latch(e.name("l")).CountDown(ctx, id)
				refused(fmt.Sprintf("CountDown of %.20q", id), err)
			}
			for what, opt := range map[string]holdfast.Option{
				"a note":   holdfast.Note(strings.Repeat("x", driver.MaxInfo)),
				"a label":  holdfast.Label("k", strings.Repeat("x", driver.MaxInfo)),
				"a key":    holdfast.Label(strings.Repeat("x", driver.MaxInfo), "v"),
				"no key":   holdfast.Label("", "v"),
				"controls": holdfast.Note(strings.Repeat("\x00", driver.MaxInfo/6)), // six bytes each
			} {
				_, err := a.Mutex(e.name("x"), opt).Lock(ctx)
				refused(what, err)
			}
		}},
}
