package drivertest

import (
	"errors"

	"github.com/holdfast-lock/holdfast/driver"
)

// countingChecks are the checks that a store without semaphores and latches skips.
var countingChecks = map[string]bool{
	"permits are conserved": true, "permits": true, "a large request": true, "a dead holder's permits": true,
	"kinds":     true,
	"set limit": true, "permits of clients": true, "latch of clients": true, "latch": true, "remove a latch": true,
	"latch push lost": true, "latch interest": true, "latch cancel": true,
	"refused permits": true, "refused count": true, "a damaged semaphore": true, "a damaged latch": true,
	"give back permits": true, "reductions refused": true, "give back under a lower limit": true,
	"give back within a minimum hold": true, "reductions at once": true, "answer to reduce lost": true,
	"a limit that stays": true, "the limit that is set": true, "answer to set limit lost": true,
	"a limit beside others": true,
	"pushes for latches":    true, "hostile IDs of latches": true,
}

var locksOnlyChecks = []check{
	{"R9", "locks only", "a store that keeps only locks refuses permits and latches as invalid, and keeps nothing of them",
		func(e *env) {
			a := e.peer()
			refused := func(what string, err error) {
				e.Helper()
				if !errors.Is(err, driver.ErrInvalid) {
					e.Errorf("%s: %v; want ErrInvalid", what, err)
				}
			}
			for _, wait := range []bool{false, true} {
				r := a.permits("s", 1, 2)
				r.Wait = wait
				_, err := a.Acquire(e.ctx, r)
				refused("permits", err)
			}
			refused("SetLimit", a.SetLimit(e.ctx, e.name("s"), 3))
			refused("Reduce", a.Reduce(e.ctx, a.get(a.shared("x")), 1))
			_, err := a.SetCount(e.ctx, e.name("l"), 3)
			refused("SetCount", err)
			_, err = a.CountDown(e.ctx, e.name("l"), "id-1")
			refused("CountDown", err)
			_, err = a.Await(e.ctx, e.name("l"), "id-1")
			refused("Await", err)
			refused("RemoveLatch", a.RemoveLatch(e.ctx, e.name("l")))
			if k := a.Kinds(); k.Semaphores || k.Latches {
				e.Errorf("Kinds = %+v", k)
			}
			for _, name := range []string{"s", "l"} {
				if rec := a.inspect(name); rec.Kind != driver.Unused {
					e.Errorf("%s: Inspect = %+v; want unused", name, rec)
				}
			}
		}},
}
