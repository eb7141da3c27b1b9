package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// grant is one attempt of a random history. The brute force reads it, and not the events made of
// it.
type grant struct {
	call, grantedAt, release, released int64 // released 0: not answered; release 0: never requested
	result                             Result
	lost, died, broken                 int64 // 0: not
	down, downed                       int64
	downResult                         Result
	proof, ttl                         int64 // ttl 0: it does not expire
	token                              uint64
	mode                               driver.Mode
	n, limit                           int32
}

// smallHistory returns a history with up to 12 operations, made of a legal execution that may then
// have been damaged.
func smallHistory(rng *rand.Rand) []grant {
	upTo := func(n int) int64 { return int64(rng.IntN(n + 1)) }
	family := rng.IntN(10)
	limit := int32(1 + rng.IntN(4))
	n := 2 + rng.IntN(5)
	var list []grant
	at, free := int64(10), int64(10) // of the last grant; when an exclusive one could follow
	for i := range n {
		g := grant{mode: driver.Exclusive, n: 1, token: uint64(i + 1)}
		switch {
		case family >= 7:
			g.mode, g.limit = driver.Permits, limit
			g.n = 1 + int32(rng.IntN(int(limit)))
		case family >= 3 && rng.IntN(3) > 0:
			g.mode = driver.Shared
		}
		at += upTo(4)
		if g.mode == driver.Exclusive || rng.IntN(3) == 0 {
			at = max(at, free)
		}
		end := at + upTo(12)
		g.call, g.grantedAt = max(1, at-upTo(8)), at+upTo(4)
		free = max(free, end)
		g.proof = g.call + upTo(int(g.grantedAt-g.call))
		switch rng.IntN(6) {
		case 0: // it expires
			g.ttl = max(1, end-g.proof-upTo(2))
			if rng.IntN(2) == 0 {
				g.release = max(g.grantedAt, end) + upTo(3)
				g.released, g.result = g.release+upTo(5), Rejected
			}
		case 1:
			g.died = max(g.grantedAt, end-upTo(3))
		case 2:
			g.release = max(g.grantedAt, end-upTo(3))
			g.released, g.result = g.release+upTo(9), Unknown
		case 3:
			g.lost = max(g.grantedAt, end-upTo(2)) + 1
			g.release = g.lost + upTo(2)
			g.released, g.result = g.release+1, Rejected
		default:
			g.release = max(g.grantedAt, end-upTo(3))
			g.released, g.result = max(g.release, end)+upTo(3), Accepted
			free = max(free, g.release)
		}
		if g.mode == driver.Exclusive && family >= 3 && g.release > g.grantedAt && rng.IntN(3) == 0 {
			g.down = g.grantedAt + upTo(int(g.release-g.grantedAt))
			if g.downResult = Result(1 + rng.IntN(3)); g.down < g.release {
				g.downed = g.down + upTo(int(g.release-g.down))
			}
		}
		if rng.IntN(8) == 0 {
			g.broken = max(g.grantedAt, end-upTo(3))
		}
		list = append(list, g)
	}
	if rng.IntN(10) < 6 {
		g := &list[rng.IntN(n)]
		for _, p := range []*int64{&g.call, &g.grantedAt, &g.release, &g.released, &g.proof} {
			if *p > 0 && rng.IntN(3) == 0 {
				*p = max(1, *p+upTo(16)-8)
			}
		}
	}
	for i := range list { // a client's own events stay in order
		g := &list[i]
		g.grantedAt = max(g.grantedAt, g.call)
		for _, p := range []*int64{&g.died, &g.broken, &g.lost, &g.down} {
			if *p > 0 {
				*p = max(*p, g.grantedAt+1)
			}
		}
		g.downed = max(g.downed, min(g.downed, 1)*g.down)
		if g.release > 0 {
			g.release = max(g.release, g.grantedAt, g.lost, g.down, g.downed)
			g.released = max(g.released, g.release)
		}
	}
	if rng.IntN(8) == 0 {
		i := rng.IntN(n)
		list[0].token, list[i].token = list[i].token, list[0].token
	}
	return list
}

// events returns the history of the grants.
func eventsOf(list []grant) (events []Event) {
	for i, g := range list {
		id, client := strconv.Itoa(i), fmt.Sprint("c", i)
		add := func(t int64, e Event) {
			if t > 0 {
				e.T, e.ID, e.Client, e.Name = t, id, client, "x"
				events = append(events, e)
			}
		}
		add(g.call, Event{Kind: Acquire, Mode: g.mode, N: g.n, Limit: g.limit, TTL: time.Duration(g.ttl)})
		add(g.grantedAt, Event{Kind: Granted, Token: g.token, From: g.proof})
		add(g.broken, Event{Kind: Broken, Token: g.token})
		add(g.down, Event{Kind: Downgrade})
		add(g.downed, Event{Kind: Downgraded, Result: g.downResult})
		add(g.lost, Event{Kind: Lost})
		add(g.died, Event{Kind: Died})
		add(g.release, Event{Kind: Release})
		add(g.released, Event{Kind: Released, Result: g.result})
	}
	Sort(events)
	return events
}

// brute tries every order of the operations of a history. It knows the rules of docs/history.md and
// shares no code with the checkers.
func brute(list []grant) bool {
	type operation struct {
		what      string
		g         int
		low, high int64
	}
	var ops []operation
	for i, g := range list {
		ops = append(ops, operation{"grant", i, g.call, g.grantedAt})
		ends := []int64{}
		expiry := []int64{} // without a release
		add := func(t int64, list ...*[]int64) {
			if t > 0 {
				for _, l := range list {
					*l = append(*l, t)
				}
			}
		}
		add(g.died, &ends, &expiry)
		add(g.broken, &ends, &expiry)
		add(g.release, &ends)
		add(g.lost, &ends)
		if g.ttl > 0 {
			add(g.proof+g.ttl, &ends, &expiry)
		}
		low, high := int64(1<<40), int64(1<<41)
		switch {
		case g.result == Accepted && g.released > 0:
			high = g.released
		case g.result == Rejected && g.released > 0 && g.lost == 0:
			high, ends = g.released, expiry
		}
		for _, t := range ends {
			low = min(low, t)
		}
		ops = append(ops, operation{"end", i, low, high})
		if g.down > 0 && g.mode == driver.Exclusive && (g.downed == 0 || g.downResult != Rejected) {
			if g.downed > 0 && g.downResult == Accepted {
				ops = append(ops, operation{"down", i, g.down, g.downed})
			} else {
				ops = append(ops, operation{"down?", i, g.down, 1 << 41})
			}
		}
	}
	type standing [6]driver.Mode // of each grant; 0: it has ended
	type state struct {
		done  uint32
		modes standing
	}
	failed := map[state]bool{}
	var try func(done uint32, last uint64, modes standing) bool
	try = func(done uint32, last uint64, modes standing) bool {
		if done == 1<<len(ops)-1 {
			return true
		}
		key := state{done, modes}
		if failed[key] {
			return false
		}
		first := int64(1 << 42) // the next operation must have happened by then
		for i, o := range ops {
			if done&(1<<i) == 0 {
				first = min(first, o.high)
			}
		}
		for i, o := range ops {
			if done&(1<<i) != 0 || first < o.low {
				continue
			}
			next, token := modes, last
			switch g := list[o.g]; {
			case o.what == "grant":
				if g.token != 0 && (g.token < last ||
					slices.ContainsFunc(list, func(x grant) bool { return x.token > last && x.token < g.token })) {
					continue
				}
				ok, used := true, g.n
				for j, m := range modes {
					ok = ok && (m == 0 || m == driver.Shared && g.mode == driver.Shared || m == driver.Permits &&
						g.mode == driver.Permits)
					if m == driver.Permits {
						used += list[j].n
					}
				}
				if !ok || g.mode == driver.Permits && used > g.limit {
					continue
				}
				next[o.g], token = g.mode, max(g.token, last)
			case modes[o.g] == 0:
				if o.what != "down?" {
					continue
				}
			case o.what == "end":
				next[o.g] = 0
			default:
				next[o.g] = driver.Shared
			}
			if try(done|1<<i, token, next) {
				return true
			}
		}
		failed[key] = true
		return false
	}
	return try(0, 0, standing{})
}

// porcupineSays checks a name by search, in as many windows as needed.
func (c *checker) porcupineSays(name int32) porcupine.CheckResult {
	list, ordered := c.ordered(name)
	var ws []*window
	add := func(w *window) { ws = append(ws, w) }
	if ordered {
		c.windows(list, func(int) bool { return true }, add)
	} else if !c.windowsWithoutTokens(name, add) {
		return porcupine.Unknown
	}
	for _, w := range ws {
		if r := porcupine.CheckOperationsTimeout(w.model(), w.ops, time.Minute); r != porcupine.Ok {
			return r
		}
	}
	return porcupine.Ok
}

// TestAgreement compares the walk, Porcupine, the brute force, and Check.
func TestAgreement(t *testing.T) {
	t.Parallel()
	histories := testenv.Rounds(1000, 10_000)
	rng := rand.New(rand.NewPCG(1, 2))
	legal, swept := 0, 0
	for i := range histories {
		list := smallHistory(rng)
		want := brute(list)
		if want {
			legal++
		}
		events := eventsOf(list)
		o := Options{Margin: -1, Notice: -1}
		c := &checker{Options: o.withDefaults(), table: newTable(events)}
		order, _ := c.ordered(0)
		bad, _ := c.walk(order)
		found := c.porcupineSays(0)
		r := Check(events, o)
		judged := r.Verdict(S1).Count+r.Verdict(S4).Count+r.Verdict(S5).Count == 0
		sweep := &checker{Options: o.withDefaults(), table: newTable(events), verdicts: map[Class]*Verdict{}}
		overlap := false
		sweep.sweep(sweep.byGranted[0], sweep.guaranteedUntil, nil, func(int32, []int32, Class) { overlap = true })
		if overlap {
			swept++
		}
		if len(c.malformed) > 0 {
			t.Fatalf("history %d is malformed: %v", i, c.malformed)
		}
		if want != (bad < 0) || want != (found == porcupine.Ok) || want != judged || want && overlap {
			t.Errorf("history %d: brute force says %v, the walk %v, Porcupine %s, Check %v, the sweep finds an overlap: %v", i,
				want, bad < 0, found, judged, overlap)
			for _, e := range events {
				t.Logf("%4d %s", e.T, e.describe(0))
			}
			if t.Failed() && i > 0 {
				t.FailNow()
			}
		}
	}
	t.Logf("%d histories, %d of them legal; the sweep alone finds %d of the others", histories, legal, swept)
	if legal < histories/5 || legal > histories*4/5 || swept < histories/20 {
		t.Errorf("%d of %d are legal, the sweep sees %d: the comparison proves little", legal, histories, swept)
	}
}

// TestAgreementWithoutTokens: without tokens, or with some, there is no walk. Porcupine, the brute
// force and Check agree, however the history is cut.
func TestAgreementWithoutTokens(t *testing.T) {
	t.Parallel()
	histories := testenv.Rounds(700, 6000)
	rng := rand.New(rand.NewPCG(3, 4))
	legal, cut := 0, 0
	for i := range histories {
		list := smallHistory(rng)
		for j := range list {
			if i%2 == 1 && rng.IntN(2) == 0 {
				continue
			}
			list[j].token = 0
			if list[j].broken > 0 { // Broken names a token
				list[j].broken = 0
			}
		}
		want := brute(list)
		if want {
			legal++
		}
		events := eventsOf(list)
		o := Options{Margin: -1, Notice: -1}
		c := &checker{Options: o.withDefaults(), table: newTable(events)}
		if _, all := c.ordered(0); !all {
			c.windowsWithoutTokens(0, func(w *window) { cut += len(w.init.holds) })
		}
		found := c.porcupineSays(0)
		r := Check(events, o)
		judged := r.Verdict(S1).Count+r.Verdict(S4).Count+r.Verdict(S5).Count == 0
		if want == judged && want == (found == porcupine.Ok) {
			continue
		}
		t.Errorf("history %d: brute force says %v, Porcupine %s, Check %v", i, want, found, judged)
		for _, e := range events {
			t.Logf("%4d %s", e.T, e.describe(0))
		}
		t.FailNow()
	}
	t.Logf("%d histories, %d of them legal; %d cuts inside a grant", histories, legal, cut)
	if legal < histories/5 || legal > histories*4/5 || cut < histories/5 {
		t.Errorf("%d of %d are legal, with %d cuts: the comparison proves little", legal, histories, cut)
	}
}
