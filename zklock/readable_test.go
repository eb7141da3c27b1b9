package zklock_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock"
)

// Readable nodes: another user can read everything, is refused, and changes nothing.
func TestReadable(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	owner := zklock.Config{Servers: cfg.Servers, Root: cfg.Root + "/app/readable", User: "ann", Password: "secret",
		Access: zklock.Readable}
	open := zklock.Config{Servers: cfg.Servers, Root: owner.Root}
	bob := zklock.Config{Servers: cfg.Servers, Root: owner.Root, User: "bob", Password: "secret", Access: zklock.Readable}
	a, same := newPeer(t, owner), newPeer(t, owner)
	h, s := a.get(a.req("x")), a.get(a.permits("s", 1, 2))
	behind := same.req("x")
	reply, err := same.Acquire(within(t), behind)
	must(t, "Acquire behind", err)
	_, err = a.SetCount(within(t), "l", 1)
	must(t, "SetCount", err)
	kept := a.req("kept")
	// It expires, and every reader with the permission deletes it.
	kept.MinHold = 10 * time.Millisecond
	a.release(a.get(kept))
	long := a.req("kept for long")
	long.MinHold = time.Hour
	a.release(a.get(long))
	for what, cfg := range map[string]zklock.Config{"nobody": open, "another user": bob} {
		p := newPeer(t, cfg)
		all, err := p.List(within(t), "", "", 10)
		if err != nil || len(all) < 3 {
			t.Errorf("%s: List: %+v, %v", what, all, err)
		}
		rec, err := p.Inspect(within(t), "x")
		if err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != h.Token || rec.Waiting != 1 {
			t.Errorf("%s: Inspect: %+v, %v", what, rec, err)
		}
		_, err = p.Inspect(within(t), "kept")
		must(t, what+": Inspect of a kept name", err)
		rec, err = p.Inspect(within(t), "kept for long")
		if err != nil || len(rec.Holders) != 1 || !rec.Holders[0].Kept {
			t.Errorf("%s: Inspect of a name that is kept for long: %+v, %v", what, rec, err)
		}
		for call, f := range map[string]func() error{
			"Lock":        func() error { _, err := p.Acquire(within(t), p.req("x")); return err },
			"RLock":       func() error { _, err := p.Acquire(within(t), p.shared("x")); return err },
			"Acquire":     func() error { _, err := p.Acquire(within(t), p.permits("s", 1, 2)); return err },
			"a new name":  func() error { _, err := p.Acquire(within(t), p.req("y")); return err },
			"SetCount":    func() error { _, err := p.SetCount(within(t), "z", 1); return err },
			"CountDown":   func() error { _, err := p.CountDown(within(t), "l", "one"); return err },
			"Adopt":       func() error { return p.Adopt(within(t), h, p.req("x").ID, "") },
			"Break":       func() error { return p.Break(within(t), "x", h.Token) },
			"RemoveLatch": func() error { return p.RemoveLatch(within(t), "l") },
			"SetLimit":    func() error { return p.SetLimit(within(t), "s", 5) },
		} {
			wants(t, what+": "+call, f(), driver.ErrRefused)
		}
	}
	a.release(h)
	same.release(same.woken(behind, reply))
	a.release(s)
	must(t, "remove", same.RemoveLatch(within(t), "l"))
}
