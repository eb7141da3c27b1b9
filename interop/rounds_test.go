package interop

import (
	"cmp"
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/interop/internal/judge"
)

// rounds is the number of rounds of each process.
var rounds = testenv.Rounds(100, 500)

// contest is the result of several sides' processes on one lock.
type contest struct {
	t       *testing.T
	kind    string
	limit   int
	actors  []*actor
	side    map[string]string
	reports []report
	counter int
	log     string
}

type report struct{ rounds, writes, shared, full int }

// contend starts a process for each of sides, and each carries out n rounds. If missing says what the contest
// lacks, they do it again: a busy machine lets one side finish before the other begins.
func contend(t *testing.T, kind string, limit, n int, missing func(*contest, judge.Verdict) string,
	sides ...side) *contest {
	t.Helper()
	w := newWorld(t)
	c := &contest{t: t, kind: kind, limit: limit, side: map[string]string{}}
	used := map[string]int{}
	for i, s := range sides {
		p := w.another(s, used[s.name])
		used[s.name]++
		c.side[fmt.Sprint(p.PID())] = s.name
		c.actors = append(c.actors, p.actor(fmt.Sprint("a", i), longSession))
	}
	// A cold virtual machine would start too late to contend.
	c.run(root+"/warm-up/"+kind, n/10)
	lack := ""
	for i := range 5 {
		c.run(fmt.Sprint(root, "/interop/", kind, i), n)
		if lack = missing(c, c.judge()); lack == "" {
			return c
		}
	}
	t.Errorf("%s, in each of 5 contests: the rest proves nothing", lack)
	return c
}

// run carries out n rounds in every process. No update may be lost.
func (c *contest) run(path string, n int) {
	c.t.Helper()
	counter, log := prepared(c.t)
	for _, a := range c.actors {
		a.Send("rounds", c.kind, path, n, counter, log, c.limit)
	}
	c.reports = nil
	for i, text := range answers(c.t, c.actors) {
		a := c.actors[i]
		var r report
		if _, err := fmt.Sscanf(text, "rounds=%d writes=%d shared=%d full=%d", &r.rounds, &r.writes, &r.shared,
			&r.full); err != nil {
			c.t.Fatalf("%s: %q: %v", a, text, err)
		}
		if r.rounds != n {
			c.t.Errorf("%s did %d of %d rounds", a, r.rounds, n)
		}
		c.reports = append(c.reports, r)
	}
	b, err := os.ReadFile(counter)
	if err == nil {
		_, err = fmt.Sscan(string(b), &c.counter)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if b, err = os.ReadFile(log); err != nil {
		c.t.Fatal(err)
	}
	c.log = string(b)
	if got := c.total().writes; c.counter != got {
		c.t.Errorf("the counter is %d after %d writes", c.counter, got)
	}
}

// answers returns the actors' answers, which must all be "ok". The first other answer fails the
// test: the other actors may then wait for ever.
func answers(t *testing.T, actors []*actor) []string {
	t.Helper()
	all := make([]string, len(actors))
	left := len(actors)
	ok := eventually(func() bool {
		for i, a := range actors {
			if a.Answered() {
				all[i] = a.OK("rounds")
				left--
			}
		}
		return left == 0
	})
	if !ok {
		t.Fatalf("%d of %d processes do not end", left, len(actors))
	}
	return all
}

// total returns the sum of the reports.
func (c *contest) total() (sum report) {
	for _, r := range c.reports {
		sum.rounds += r.rounds
		sum.writes += r.writes
		sum.shared += r.shared
		sum.full += r.full
	}
	return sum
}

// checkCount checks that the rounds wrote as often as they should.
func (c *contest) checkCount(writes int) {
	c.t.Helper()
	if got := c.total().writes; got != writes {
		c.t.Errorf("%d writes; want %d", got, writes)
	}
}

// rare says that what happened n times should happen atLeast so often; it is empty if it did.
func rare(what string, n, atLeast int) string {
	if n >= atLeast {
		return ""
	}
	return fmt.Sprintf("%s %d times, of at least %d", what, n, atLeast)
}

// judge fails the test if the log shows an overlap.
func (c *contest) judge() judge.Verdict {
	c.t.Helper()
	v, err := judge.Read(c.log, c.side, c.limit)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Logf("%+v, %+v", c.total(), v)
	return v
}

func TestMutexRounds(t *testing.T) {
	turns := func(_ *contest, v judge.Verdict) string { return rare("the lock changed sides", v.Turns, rounds/5) }
	c := contend(t, "mutex", 1, rounds, turns, curator, curator, ours, ours)
	c.checkCount(4 * rounds)
}

func TestReadWriteRounds(t *testing.T) {
	c := contend(t, "rw", 1, rounds, func(c *contest, v judge.Verdict) string {
		return cmp.Or(rare("the lock changed sides", v.Turns, rounds/5),
			rare("readers of both sides were inside together", v.Mixed, 1),
			rare("a reader saw another reader inside", c.total().shared, 1))
	}, curator, curator, ours, ours)
	c.checkCount(4 * rounds / 5)
}

func TestSemaphoreRounds(t *testing.T) {
	const limit = 3
	contend(t, "semaphore", limit, rounds, func(c *contest, v judge.Verdict) string {
		if v.Most < limit {
			return fmt.Sprintf("at most %d of %d were inside", v.Most, limit)
		}
		return cmp.Or(rare("holders of both sides were inside together", v.Mixed, rounds/5),
			rare("all permits were in use", c.total().full, 1))
	}, curator, curator, ours, ours)
}

// The lock of the usual Go client is a third party: it knows neither Curator nor holdfast.
func TestThreePartiesRounds(t *testing.T) {
	turns := func(_ *contest, v judge.Verdict) string { return rare("the lock changed sides", v.Turns, rounds/20) }
	c := contend(t, "mutex", 1, rounds/5, turns, curator, ours, stock)
	c.checkCount(3 * rounds / 5)
}
