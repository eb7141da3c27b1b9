package modeltest

import (
	"errors"
	"fmt"

	"pgregory.net/rapid"

	"github.com/holdfast-lock/holdfast/driver"
)

// refused makes a call that must write while the store accepts no writes: it must fail without
// effect. The next check compares the records and the pushes.
func (w *world) refused(t *rapid.T) {
	w.tick()
	var call func() error
	what := rapid.SampledFrom([]string{"Release", "Cancel", "Downgrade", "Reduce", "Break", "Acquire", "CountDown"}).
		Draw(t, "refused")
	switch what {
	case "Acquire":
		c, n := w.anyClient(), w.aLock()
		if n.Used() {
			t.Skip("the store need not write")
		}
		w.ids++
		req := driver.Request{ID: fmt.Sprintf("%s-%d", c.id, w.ids), Name: n.name, Mode: driver.Exclusive, N: 1, Wait: true}
		call = func() error { _, err := c.Acquire(w.ctx, &req); return err }
	case "CountDown":
		c, n := w.anyClient(), w.aLatch()
		if n.Kind != driver.Latch || n.Count == 0 {
			t.Skip("there is no latch to count")
		}
		call = func() error { _, err := c.CountDown(w.ctx, n.name, "refused"); return err }
	default:
		r := w.pick(func(r *request) bool {
			return !r.latch && !r.by.gone && w.isGranted(r) &&
				(what != "Downgrade" || r.Mode == driver.Exclusive && r.n.grantOf(r.ID).Mode == driver.Exclusive) &&
				(what != "Reduce" || r.n.grantOf(r.ID).N > 1 && r.n.grantOf(r.ID).KeepUntil <= w.now)
		})
		h := r.hold()
		call = map[string]func() error{
			"Release":   func() error { return r.by.Release(w.ctx, h, 0) },
			"Cancel":    func() error { return r.by.Cancel(w.ctx, r.Name, r.ID) },
			"Downgrade": func() error { return r.by.Downgrade(w.ctx, h) },
			"Reduce":    func() error { return r.by.Reduce(w.ctx, h, 1) },
			"Break":     func() error { return w.store.Backend.Break(w.ctx, h.Name, h.Token) },
		}[what]
	}
	heal := w.store.Refuse()
	err := call()
	heal()
	w.logf("%s, refused: %v", what, err)
	if !errors.Is(err, driver.ErrRefused) && !errors.Is(err, driver.ErrUnavailable) {
		w.t.Fatalf("%s while the store accepted no writes: %v; want ErrRefused or ErrUnavailable", what, err)
	}
}
