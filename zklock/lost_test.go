package zklock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// networkFaults are a network that loses requests, and one that loses answers.
var networkFaults = []struct {
	name    string
	arrives bool
	begin   func(*testenv.TCPProxy)
}{
	{"request lost", false, (*testenv.TCPProxy).Hole},
	{"answer lost", true, (*testenv.TCPProxy).DropReplies},
}

// spoil calls f in a disturbed network, then repeats it until a server answers. If requests arrive, it
// first waits for acted.
type spoil func(f func(context.Context) error, acted ...func() bool) error

// A request without an answer is repeated until a server answers. Whether or not the first one
// arrived, the outcome is that of one request.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	for _, c := range []struct {
		name string
		run  func(t *testing.T, a, b *peer, spoiled spoil, arrives bool)
	}{
		{"create", func(t *testing.T, a, b *peer, spoiled spoil, _ bool) {
			r := a.req("n/create")
			must(t, "Acquire", spoiled(func(ctx context.Context) error { _, err := a.Acquire(ctx, r); return err }))
			h := a.get(r)
			if rec := b.inspect(r.Name); len(rec.Holders) != 1 || rec.Waiting != 0 || rec.Holders[0].Token != h.Token {
				t.Errorf("one request, asked again and again: %+v", rec)
			}
			a.release(h)
		}},
		{"create given up", func(t *testing.T, a, b *peer, spoiled spoil, _ bool) {
			r := a.req("n/create")
			_ = spoiled(func(ctx context.Context) error {
				_, err := a.Acquire(ctx, r)
				return errors.Join(err, a.Cancel(ctx, r.Name, r.ID))
			})
			must(t, "Cancel", answered(t, func(ctx context.Context) error { return a.Cancel(ctx, r.Name, r.ID) }))
			b.release(b.get(once(b.req(r.Name))))
		}},
		{"permits", func(t *testing.T, a, b *peer, spoiled spoil, _ bool) {
			r := a.permits("n/permits", 2, 3)
			must(t, "Acquire", spoiled(func(ctx context.Context) error { _, err := a.Acquire(ctx, r); return err }))
			h := a.get(r)
			b.refused(once(b.permits(r.Name, 2, 3)))
			b.release(b.get(once(b.permits(r.Name, 1, 3))))
			err := spoiled(func(ctx context.Context) error { return a.Release(ctx, h, 0) })
			if err != nil && !errors.Is(err, driver.ErrGone) {
				t.Errorf("Release: %v", err)
			}
			b.release(b.get(once(b.permits(r.Name, 3, 3))))
		}},
		{"release", func(t *testing.T, a, b *peer, spoiled spoil, arrives bool) {
			h := a.get(a.req("n/release"))
			err := spoiled(func(ctx context.Context) error { return a.Release(ctx, h, 0) },
				func() bool { return b.inspect(h.Name).Kind == driver.Unused })
			if arrives {
				wants(t, "Release of a released grant", err, driver.ErrGone)
			} else {
				wants(t, "Release", err, nil)
			}
			b.release(b.get(once(b.req(h.Name)))) // at once, not after the grant has expired
		}},
		{"downgrade", func(t *testing.T, a, b *peer, spoiled spoil, _ bool) {
			h := a.get(a.req("n/downgrade"))
			wants(t, "Downgrade", spoiled(func(ctx context.Context) error { return a.Downgrade(ctx, h) }), nil)
			if ch := a.renew(h); ch.State != 0 {
				t.Errorf("Renew after it: %+v", ch)
			}
			b.refused(once(b.req(h.Name)))
			b.release(b.get(once(b.shared(h.Name))))
			a.release(h)
		}},
		{"renewal in doubt", func(t *testing.T, a, b *peer, spoiled spoil, arrives bool) {
			h := a.get(a.req("n/renew"))
			var gone bool
			err := spoiled(func(ctx context.Context) error {
				if err := a.Release(ctx, h, 0); err != nil && ctx.Err() != nil {
					return err // and nobody asks again
				}
				changes, err := a.Renew(ctx, []driver.Hold{h})
				gone = len(changes) == 1 && changes[0].State == driver.Gone
				return err
			})
			wants(t, "Renew", err, nil)
			if rec := b.inspect(h.Name); gone != (rec.Kind == driver.Unused) {
				t.Errorf("Renew returned Gone: %v; the servers have %+v", gone, rec)
			}
			_ = a.Release(within(t), h, 0)
		}},
		{"mark", func(t *testing.T, a, b *peer, spoiled spoil, _ bool) {
			r := a.req("n/mark")
			r.MinHold = time.Hour
			must(t, "Acquire", spoiled(func(ctx context.Context) error { _, err := a.Acquire(ctx, r); return err }))
			h := a.get(r)
			a.release(h)
			if reply := b.refused(once(b.req(r.Name))); reply.Holder == nil || !reply.Holder.Kept {
				t.Errorf("released before its minimum hold is over: %+v", reply.Holder)
			}
			must(t, "Break", b.Break(within(t), h.Name, h.Token))
		}},
		{"release that keeps", func(t *testing.T, a, b *peer, spoiled spoil, arrives bool) {
			h := a.get(a.req("n/keep"))
			err := spoiled(func(ctx context.Context) error { return a.Release(ctx, h, time.Hour) }, func() bool {
				rec := b.inspect(h.Name)
				return len(rec.Holders) == 1 && rec.Holders[0].Kept
			})
			if arrives != errors.Is(err, driver.ErrGone) || !arrives && err != nil {
				t.Errorf("Release: %v", err)
			}
			rec := b.inspect(h.Name)
			if len(rec.Holders) != 1 || !rec.Holders[0].Kept {
				t.Fatalf("kept: %+v", rec)
			}
			must(t, "Break", b.Break(within(t), h.Name, rec.Holders[0].Token))
		}},
		{"adoption", func(t *testing.T, a, b *peer, spoiled spoil, _ bool) {
			h := b.get(b.req("n/adopt"))
			id := a.req("x").ID
			must(t, "Adopt", spoiled(func(ctx context.Context) error { return a.Adopt(ctx, h, id, "") }))
			mine := driver.Hold{Name: h.Name, ID: id, Token: h.Token}
			if ch := a.renew(mine); ch.State != 0 {
				t.Errorf("Renew of an adopted grant: %+v", ch)
			}
			a.release(mine)
		}},
		{"countdown", func(t *testing.T, a, b *peer, spoiled spoil, _ bool) {
			_, err := b.SetCount(within(t), "n/count", 2)
			must(t, "SetCount", err)
			var left int64
			must(t, "CountDown", spoiled(func(ctx context.Context) (err error) {
				left, err = a.CountDown(ctx, "n/count", "one")
				return err
			}))
			if left != 1 {
				t.Errorf("%d left of 2 after one id", left)
			}
			must(t, "remove", b.RemoveLatch(within(t), "n/count"))
		}},
	} {
		for _, tr := range networkFaults {
			t.Run(c.name+"/"+tr.name, func(t *testing.T) {
				proxy := testenv.Proxy(t, server.Addr)
				a, b := newPeer(t, through(cfg, proxy)), newPeer(t, cfg)
				a.release(a.get(a.req("n/known"))) // the folders exist, and the connection works
				c.run(t, a, b, func(f func(context.Context) error, acted ...func() bool) error {
					tr.begin(proxy)
					until(t, "the request has acted", func() bool { // a slow server has it later
						fails(t, c.name, f)
						return !tr.arrives || len(acted) == 0 || acted[0]()
					})
					proxy.Heal()
					return answered(t, f)
				}, tr.arrives)
				z.empty(cfg.Root + "/n")
			})
		}
	}
}

// A release is carried out, and the session ends before the answer arrives. The holder must not
// learn that the grant had ended before: the next holder may have the lock because of this release.
func TestReleaseAnswerLostWithItsSession(t *testing.T) {
	t.Parallel()
	server := testenv.ZooKeeper(t, longSessions)
	proxy := testenv.Proxy(t, server.Addr)
	b := newPeer(t, on(server.Addr))
	a := newPeerFor(t, on(proxy.Addr), 8*time.Second)
	h := a.get(a.req("x"))
	proxy.DropReplies()
	if err := a.Release(within(t), h, 0); !errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrGone) {
		t.Errorf("Release: %v; want ErrUncertain", err)
	}
	until(t, "it was carried out", func() bool { return b.inspect(h.Name).Kind == driver.Unused })
	if err := a.Release(within(t), h, 0); !errors.Is(err, driver.ErrGone) && !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Release by a session that is over: %v", err)
	}
}
