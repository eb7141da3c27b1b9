package redisson

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/interop/internal/judge"
)

// rounds is the number of rounds of each process.
var rounds = testenv.Rounds(50, 500)

// contest is the result of both sides' processes on one lock.
type contest struct {
	w      *world
	kind   string
	limit  int
	actors []*actor
	sides  map[string]string // by process id
	writes int
	log    []string
}

// contend starts two processes of each side, and each carries out n rounds. If the sides hardly contended,
// by least, they do it again: a busy machine lets one side finish before the other begins.
func (w *world) contend(kind, name string, limit, n int, least judge.Verdict) *contest {
	w.t.Helper()
	c := w.contest(kind, limit, long, (*side).sharedTwo)
	// A cold virtual machine would start too late to contend.
	c.run(name+":warm-up", n/10+1, nil)
	c.run(name, n, nil)
	for again := 1; again < 5 && less(c.verdict(), least); again++ {
		c.run(fmt.Sprint(name, ":again", again), n, nil)
	}
	c.check(least)
	return c
}

// less reports whether any figure of a contest is below the least that it needs.
func less(v, least judge.Verdict) bool {
	return v.Turns < least.Turns || v.Mixed < least.Mixed || v.Most < least.Most
}

// contest returns a contest of two processes of each side, which have not begun.
func (w *world) contest(kind string, limit int, ttl time.Duration, two func(*side, testing.TB) [2]*process) *contest {
	w.t.Helper()
	c := &contest{w: w, kind: kind, limit: limit, sides: map[string]string{}}
	for _, s := range []*side{w.java(), w.ours()} {
		for i, p := range two(s, w.t) {
			c.sides[strconv.Itoa(p.PID())] = s.name
			c.actors = append(c.actors, w.actorAt(p, fmt.Sprint(kind, i), ttl))
		}
	}
	return c
}

// sharedTwo returns the two processes that tests share.
func (s *side) sharedTwo(t testing.TB) [2]*process {
	t.Helper()
	return [2]*process{s.shared[0](t), s.shared[1](t)}
}

// startTwo starts two processes for one test.
func (s *side) startTwo(t testing.TB) [2]*process {
	t.Helper()
	return [2]*process{s.start(t), s.start(t)}
}

// start lets every process begin n rounds.
func (c *contest) start(name string, n int) {
	t := c.w.t
	t.Helper()
	if c.kind == "semaphore" || c.kind == "permit" {
		c.actors[0].Do("setpermits", c.kind, name, c.limit)
	}
	key := "contest:" + name
	if err := c.w.judge.Set(t.Context(), key+":counter", 0, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, a := range c.actors {
		a.Send("rounds", c.kind, name, n, c.w.judge.Options().Addr, key)
	}
}

// run carries out n rounds in every process. disturb, if not nil, runs meanwhile.
func (c *contest) run(name string, n int, disturb func()) {
	t := c.w.t
	t.Helper()
	c.start(name, n)
	if disturb != nil {
		disturb()
	}
	c.writes = 0
	for i, text := range answers(c.actors) {
		var rounds, writes int
		if _, err := fmt.Sscanf(text, "rounds=%d writes=%d", &rounds, &writes); err != nil || rounds != n {
			t.Fatalf("%s did not do %d rounds: %q, %v", c.actors[i], n, text, err)
		}
		c.writes += writes
	}
	if counter := c.counter(name); counter != c.writes {
		t.Errorf("the counter is %d after %d writes", counter, c.writes)
	}
	c.log = c.entries(name)
}

func (c *contest) counter(name string) int {
	c.w.t.Helper()
	n, err := c.w.judge.Get(c.w.t.Context(), "contest:"+name+":counter").Int()
	if err != nil {
		c.w.t.Fatal(err)
	}
	return n
}

// entries returns what the contenders have noted.
func (c *contest) entries(name string) []string {
	c.w.t.Helper()
	all, err := c.w.judge.LRange(c.w.t.Context(), "contest:"+name+":log", 0, -1).Result()
	if err != nil {
		c.w.t.Fatal(err)
	}
	return all
}

// answers returns the actors' answers, which must all be "ok". The first other answer fails the
// test: the other actors may then wait for ever.
func answers(actors []*actor) []string {
	t := actors[0].T
	t.Helper()
	all := make([]string, len(actors))
	left := len(actors)
	var dead *actor
	ok := eventually(func() bool {
		for i, a := range actors {
			if a.Answered() {
				all[i] = a.OK("rounds")
				left--
				continue
			}
			select {
			case <-a.Process.Done():
				dead = a
			default:
			}
		}
		return left == 0 || dead != nil
	})
	if left > 0 && dead != nil {
		t.Fatalf("%s: the process has ended\n%s", dead, dead.Process.Failure())
	}
	if !ok {
		t.Fatalf("%d of %d processes do not end", left, len(actors))
	}
	return all
}

// check fails the test if the log shows an overlap, or the sides hardly contended: the rest then
// proves nothing.
func (c *contest) check(least judge.Verdict) {
	t := c.w.t
	t.Helper()
	v := c.verdict()
	waits := c.handovers()
	t.Logf("%s: %d writes, %+v; half of the %d hand-overs between sides within %v", c.kind, c.writes, v, len(waits),
		median(waits))
	if less(v, least) {
		t.Errorf("%s: the sides hardly contended: %+v; the test needs at least %+v", c.kind, v, least)
	}
}

// verdict fails the test if the log shows an overlap.
func (c *contest) verdict() judge.Verdict {
	c.w.t.Helper()
	v, err := judge.Read(strings.Join(c.log, "\n"), c.sides, c.limit)
	if err != nil {
		c.w.t.Fatal(err)
	}
	return v
}

// handovers returns how long each hand-over of an exclusive lock to the other side took, by the
// machine's clock.
func (c *contest) handovers() (all []time.Duration) {
	c.w.t.Helper()
	var last []string
	for _, line := range c.log {
		f := strings.Fields(line)
		if f[0] == "enter" && last != nil && last[0] == "leave" && c.sideOf(f) != c.sideOf(last) {
			all = append(all, time.Duration(c.number(f[3])-c.number(last[3]))*time.Microsecond)
		}
		last = f
	}
	return all
}

func (c *contest) sideOf(f []string) string {
	process, _, _ := strings.Cut(f[2], ".")
	return c.sides[process]
}

func (c *contest) number(text string) int64 {
	c.w.t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		c.w.t.Fatal(err)
	}
	return n
}

// checkHandovers fails the test if most hand-overs took far longer than a message does: the sides
// then do not wake each other.
func (c *contest) checkHandovers() {
	c.w.t.Helper()
	if m := median(c.handovers()); m > promptly {
		c.w.t.Errorf("half of the hand-overs took %v or longer", m)
	}
}

// promptly is much longer than a message takes, and much shorter than a lease.
const promptly = 2 * time.Second

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

func TestMutexRounds(t *testing.T) {
	each(t, everywhere, func(w *world) {
		c := w.contend("mutex", w.name("mutex"), 1, rounds, judge.Verdict{Turns: rounds / 10})
		c.checkHandovers()
	})
}

func TestFairRounds(t *testing.T) {
	each(t, []place{server, cluster}, func(w *world) {
		c := w.contend("fair", w.name("fair"), 1, rounds, judge.Verdict{Turns: rounds / 5})
		c.checkHandovers()
	})
}

// Each grant has a larger fencing token than all before it, whichever side it went to.
func TestFencedRounds(t *testing.T) {
	each(t, []place{server}, func(w *world) {
		c := w.contend("fenced", w.name("fenced"), 1, rounds, judge.Verdict{Turns: rounds / 10})
		c.checkHandovers()
		var last int64
		for _, line := range c.log {
			if f := strings.Fields(line); f[0] == "enter" {
				token := c.number(f[4])
				if token <= last {
					w.t.Fatalf("a grant has the token %d after %d", token, last)
				}
				last = token
			}
		}
	})
}

func TestReadWriteRounds(t *testing.T) {
	each(t, []place{server}, func(w *world) {
		// Only readers mix.
		c := w.contend("rw", w.name("rw"), 1, rounds, judge.Verdict{Turns: rounds / 10, Mixed: 1})
		if c.writes != 4*rounds/5 {
			w.t.Errorf("%d writes, want %d", c.writes, 4*rounds/5)
		}
	})
}

func TestSemaphoreRounds(t *testing.T) {
	each(t, []place{server}, func(w *world) {
		for _, kind := range []string{"semaphore", "permit"} {
			const limit = 3
			w.contend(kind, w.name(kind), limit, rounds,
				judge.Verdict{Turns: rounds / 10, Mixed: rounds / 10, Most: limit})
		}
	})
}

func TestMultiRounds(t *testing.T) {
	each(t, []place{cluster}, func(w *world) {
		w.contend("multi", w.name("a")+","+w.name("b")+","+w.name("c"), 1, rounds/2,
			judge.Verdict{Turns: 2})
	})
}

// Waiters that give up at any moment leave nothing: no overlap, no lost permit, and a lock that the
// next one gets at once.
func TestImpatience(t *testing.T) {
	each(t, []place{server}, func(w *world) {
		for _, kind := range []string{"mutex", "fair", "rw", "semaphore", "permit"} {
			name, key := w.name(kind), "contest:"+w.name(kind)
			if err := w.judge.Set(t.Context(), key+":counter", 0, 0).Err(); err != nil {
				w.t.Fatal(err)
			}
			if kind == "semaphore" || kind == "permit" {
				w.actor(w.java(), kind+"-setter", long).Do("setpermits", kind, name, 2)
			}
			sides := map[string]string{}
			var actors []*actor
			for _, s := range []*side{w.java(), w.ours()} {
				for i, shared := range s.shared {
					p := shared(w.t)
					sides[strconv.Itoa(p.PID())] = s.name
					for j := range 3 {
						a := w.actorAt(p, fmt.Sprintf("%s-%d-%d", kind, i, j), long)
						a.Send("rounds", kind, name, rounds, w.judge.Options().Addr, key, 12)
						actors = append(actors, a)
					}
				}
			}
			answers(actors)
			log, err := w.judge.LRange(t.Context(), key+":log", 0, -1).Result()
			if err != nil {
				w.t.Fatal(err)
			}
			v, err := judge.Read(strings.Join(log, "\n"), sides, 2)
			if err != nil {
				w.t.Fatal(err)
			}
			w.t.Logf("%s: %d grants in %d rounds, %+v", kind, len(log)/2, len(actors)*rounds, v)
			for _, a := range []*actor{actors[0], actors[len(actors)-1]} {
				last := strings.Replace(kind, "rw", "write", 1)
				a.Do("lock", last, name)
				a.Do("unlock")
				if last == "permit" || last == "semaphore" {
					free := ""
					// What a waiter asked for last may be given back later, but long before its lease ends.
					all := comes(func() bool {
						free = actors[0].Do("permits", kind, name)
						return free == "2"
					}, 30*time.Second)
					if !all {
						w.t.Errorf("%s: %s permits are free at the end, want 2", kind, free)
					}
				}
			}
		}
	})
}

// The check of these contests finds work without a lock, on either side.
func TestRoundsCanFail(t *testing.T) {
	w := newWorld(t, releases()[0], server)
	for i, s := range []*side{w.java(), w.ours()} {
		p := s.shared[0](t)
		key := fmt.Sprint("contest:", w.name("unlocked"), i)
		if err := w.judge.Set(t.Context(), key+":counter", 0, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if err := w.judge.RPush(t.Context(), key+":log", "enter mutex 1.other 0 -").Err(); err != nil {
			t.Fatal(err)
		}
		w.actorAt(p, fmt.Sprint("intruder", i), long).Do("enter", "mutex", w.judge.Options().Addr, key)
		log, err := w.judge.LRange(t.Context(), key+":log", 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		sides := map[string]string{"1": "other", strconv.Itoa(p.PID()): s.name}
		if v, err := judge.Read(strings.Join(log, "\n"), sides, 1); err == nil {
			t.Errorf("%s came in while another one was inside, and the judge says %+v:\n%s", s.name, v, log)
		}
	}
}
