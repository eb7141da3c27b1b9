package interop

import (
	"fmt"
	"os"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// rounds are those of each process.
var rounds = testenv.Rounds(100, 500)

// contest is what processes of several sides did on one lock.
type contest struct {
	t       *testing.T
	kind    string
	limit   int
	crew    []*actor
	side    sides
	reports []report
	counter int
	log     string
}

type report struct{ rounds, writes, shared, full int }

// contend starts a process for each of who and lets them do n rounds.
func contend(t *testing.T, kind string, limit, n int, who ...side) *contest {
	t.Helper()
	w := newWorld(t)
	c := &contest{t: t, kind: kind, limit: limit, side: sides{}}
	used := map[string]int{}
	for i, s := range who {
		p := w.another(s, used[s.name])
		used[s.name]++
		c.side[fmt.Sprint(p.cmd.Process.Pid)] = s.name
		c.crew = append(c.crew, p.actor(fmt.Sprint("a", i), long))
	}
	// A cold virtual machine would come too late to meet the others.
	c.run(root+"/warm-up/"+kind, n/10)
	c.run(root+"/interop/"+kind, n)
	return c
}

// run does n rounds in every process.
func (c *contest) run(path string, n int) {
	c.t.Helper()
	counter, log := prepared(c.t)
	for _, a := range c.crew {
		a.send("rounds", c.kind, path, n, counter, log, c.limit)
	}
	c.reports = nil
	for i, text := range answers(c.t, c.crew) {
		a := c.crew[i]
		var r report
		if _, err := fmt.Sscanf(text, "rounds=%d writes=%d shared=%d full=%d", &r.rounds, &r.writes, &r.shared, &r.full); err != nil {
			c.t.Fatalf("%s: %q: %v", a, text, err)
		}
		if r.rounds != n {
			c.t.Errorf("%s did %d rounds of %d", a, r.rounds, n)
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

// answers are those of the crew, all of them "ok". The first that is not fails the test: the
// others may then wait for ever.
func answers(t *testing.T, crew []*actor) []string {
	t.Helper()
	all := make([]string, len(crew))
	left := len(crew)
	ok := eventually(func() bool {
		for i, a := range crew {
			if len(a.replies) > 0 {
				all[i] = a.ok("rounds")
				left--
			}
		}
		return left == 0
	})
	if !ok {
		t.Fatalf("%d of %d processes do not come to an end", left, len(crew))
	}
	return all
}

// total is the sum of the reports.
func (c *contest) total() (sum report) {
	for _, r := range c.reports {
		sum.rounds += r.rounds
		sum.writes += r.writes
		sum.shared += r.shared
		sum.full += r.full
	}
	return sum
}

// counted checks that no update was lost.
func (c *contest) counted(writes int) {
	c.t.Helper()
	if got := c.total().writes; got != writes || c.counter != writes {
		c.t.Errorf("the counter is %d after %d writes; %d were due", c.counter, got, writes)
	}
}

// met fails the test if the sides hardly ever contended: then the rest proves nothing.
func (c *contest) met(what string, n, atLeast int) {
	c.t.Helper()
	if n < atLeast {
		c.t.Errorf("%s only %d times; at least %d are needed for a proof", what, n, atLeast)
	}
}

// judge fails the test if the log shows an overlap.
func (c *contest) judge() verdict {
	c.t.Helper()
	v, err := judge(c.log, c.side, c.limit)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Logf("%+v, %+v", c.total(), v)
	return v
}

func TestMutexRounds(t *testing.T) {
	c := contend(t, "mutex", 1, rounds, curator, curator, ours, ours)
	c.counted(4 * rounds)
	c.met("the lock went from side to side", c.judge().turns, rounds/5)
}

func TestReadWriteRounds(t *testing.T) {
	c := contend(t, "rw", 1, rounds, curator, curator, ours, ours)
	c.counted(4 * rounds / 5)
	v := c.judge()
	c.met("the lock went from side to side", v.turns, rounds/5)
	c.met("readers of both sides were inside together", v.mixed, 1)
	if c.total().shared == 0 {
		t.Error("no two readers were ever inside together")
	}
}

func TestSemaphoreRounds(t *testing.T) {
	const limit = 3
	c := contend(t, "semaphore", limit, rounds, curator, curator, ours, ours)
	v := c.judge()
	c.met("holders of both sides were inside together", v.mixed, rounds/5)
	if v.most != limit || c.total().full == 0 {
		t.Errorf("at most %d were inside, all permits were in use in %d rounds; the limit is %d", v.most, c.total().full, limit)
	}
}

// The lock of the usual Go client is a third party: it knows neither Curator nor holdfast.
func TestThreePartiesRounds(t *testing.T) {
	c := contend(t, "mutex", 1, rounds/5, curator, ours, stock)
	c.counted(3 * rounds / 5)
	c.met("the lock went from side to side", c.judge().turns, rounds/20)
}
