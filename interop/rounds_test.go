package interop

import (
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

// contend starts a process for each of sides, and each carries out n rounds.
func contend(t *testing.T, kind string, limit, n int, sides ...side) *contest {
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
	c.run(root+"/interop/"+kind, n)
	return c
}

// run carries out n rounds in every process.
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

// checkCount checks that no update was lost.
func (c *contest) checkCount(writes int) {
	c.t.Helper()
	if got := c.total().writes; got != writes || c.counter != writes {
		c.t.Errorf("the counter is %d after %d writes; want %d", c.counter, got, writes)
	}
}

// checkContention fails the test if the sides hardly contended: the rest then proves nothing.
func (c *contest) checkContention(what string, n, atLeast int) {
	c.t.Helper()
	if n < atLeast {
		c.t.Errorf("%s only %d times; the test needs at least %d", what, n, atLeast)
	}
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
	c := contend(t, "mutex", 1, rounds, curator, curator, ours, ours)
	c.checkCount(4 * rounds)
	c.checkContention("the lock changed sides", c.judge().Turns, rounds/5)
}

func TestReadWriteRounds(t *testing.T) {
	c := contend(t, "rw", 1, rounds, curator, curator, ours, ours)
	c.checkCount(4 * rounds / 5)
	v := c.judge()
	c.checkContention("the lock changed sides", v.Turns, rounds/5)
	c.checkContention("readers of both sides were inside together", v.Mixed, 1)
	if c.total().shared == 0 {
		t.Error("no two readers were ever inside together")
	}
}

func TestSemaphoreRounds(t *testing.T) {
	const limit = 3
	c := contend(t, "semaphore", limit, rounds, curator, curator, ours, ours)
	v := c.judge()
	c.checkContention("holders of both sides were inside together", v.Mixed, rounds/5)
	if v.Most != limit || c.total().full == 0 {
		t.Errorf("at most %d were inside, all permits were in use in %d rounds; the limit is %d", v.Most, c.total().full,
			limit)
	}
}

// The lock of the usual Go client is a third party: it knows neither Curator nor holdfast.
func TestThreePartiesRounds(t *testing.T) {
	c := contend(t, "mutex", 1, rounds/5, curator, ours, stock)
	c.checkCount(3 * rounds / 5)
	c.checkContention("the lock changed sides", c.judge().Turns, rounds/20)
}
