package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// stepper is put before a script. The redis call whose number is in the key step:at fails. If that
// is 0, none fails, and step:names gets the commands of all calls. Published messages are recorded in
// step:published. The clock is ahead by the seconds in step:ahead.
const stepper = `
local redis = (function(real)
  local at = real.call('GET', 'step:at')
  local left, ahead = tonumber(at or 0), tonumber(real.call('GET', 'step:ahead') or 0)
  local function run(f, name, ...)
    if at == '0' then real.call('RPUSH', 'step:names', name) end
    left = left - 1
    if left == 0 then
      real.call('SET', 'step:failed', name)
      return nil, 'ERR this step fails'
    end
    local r = f(name, ...)
    if name == 'TIME' then return {tostring(r[1] + ahead), r[2]} end
    if name == 'PUBLISH' or name == 'SPUBLISH' then real.call('RPUSH', 'step:published', ({...})[2]) end
    return r
  end
  return {
    sha1hex = real.sha1hex,
    call = function(...)
      local r, e = run(real.call, ...)
      if e then error(e) end
      return r
    end,
    pcall = function(...)
      local r, e = run(real.pcall, ...)
      return not e and r or e and {err = e} or r
    end,
  }
end)(redis)
`

// stepped is a lock table whose scripts can fail at each of their steps.
type stepped struct {
	*redislock.Backend
	ctx    context.Context
	client rueidis.Client
	tag    string
	kind   kind

	a, b, c, d driver.Session // d has no subscription
}

func newStepped(t *testing.T, kind kind, addr string) *stepped {
	s := &stepped{ctx: within(t, 20*time.Minute), client: rawClient(t, addr), kind: kind, tag: newID()}
	conn := func(mute bool) redislock.Conn {
		return &sided{Conn: rueidisconn.New(s.client), cluster: kind == cluster || kind == formattedCluster, mute: mute}
	}
	open := func(mute bool) driver.Session {
		edit := func(_, text string) string { return stepper + text }
		b := newEdited(conn(mute), &redislock.Config{Prefix: "hf:"}, edit)
		switch kind {
		case formatted, formattedCluster:
			b = newFormat(conn(mute), nil, edit)
		case fair:
			b = newFormat(conn(mute), &redisson.Config{Fair: true}, edit)
		}
		hook.RedisListenEarly(b)
		s.Backend = b
		return openSession(t, b, time.Minute)
	}
	s.d, s.a, s.b, s.c = open(true), open(false), open(false), open(false)
	return s
}

func (s *stepped) do(t testing.TB, words ...string) rueidis.RedisResult {
	t.Helper()
	r := s.client.Do(s.ctx, s.client.B().Arbitrary(words...).Build())
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%v: %v", words, err)
	}
	return r
}

// later moves the clock of the scripts forward.
func (s *stepped) later(t testing.TB, d time.Duration) {
	s.do(t, "INCRBY", "step:ahead", strconv.Itoa(int(d/time.Second)))
}

// scene is a name in some state.
type scene struct {
	*stepped
	t     testing.TB
	name  string
	ids   map[string]driver.Hold // by letter; the token is 0 unless the request was granted at once
	latch bool
}

func (z *scene) session(letter string) driver.Session {
	return map[byte]driver.Session{'a': z.a, 'b': z.b, 'c': z.c, 'd': z.d}[letter[0]]
}

// ask makes the request of a letter: sessions a, b and c are subscribed, d is not.
func (z *scene) ask(letter string, mode driver.Mode, n, limit int, min time.Duration) error {
	h, known := z.ids[letter]
	if !known {
		h = driver.Hold{Name: z.name, ID: newID()}
	}
	reply, err := z.session(letter).Acquire(z.ctx, &driver.Request{ID: h.ID, Name: z.name, Mode: mode, N: n, Limit: limit,
		Wait: true, MinHold: min})
	h.Token = max(h.Token, reply.Token)
	z.ids[letter] = h
	return err
}

func (z *scene) x(letter string) error { return z.ask(letter, driver.Exclusive, 1, 0, 0) }
func (z *scene) s(letter string) error { return z.ask(letter, driver.Shared, 1, 0, 0) }
func (z *scene) p(letter string, n int) error {
	return z.ask(letter, driver.Permits, n, 2, 0)
}

func (z *scene) release(letter string, keep time.Duration) error {
	return z.session(letter).Release(z.ctx, z.ids[letter], keep)
}

func (z *scene) cancel(letter string) error {
	return z.session(letter).Cancel(z.ctx, z.name, z.ids[letter].ID)
}

func (z *scene) renew(letters ...string) error {
	var err error
	for _, l := range letters {
		_, e := z.session(l).Renew(z.ctx, []driver.Hold{z.ids[l]})
		err = errors.Join(err, e)
	}
	return err
}

// scenes prepare a name. Each has the requests that may fail there.
var scenes = map[string]struct {
	prepare func(z *scene) error
	do      map[string]func(z *scene) error
}{
	"new": {func(*scene) error { return nil }, map[string]func(z *scene) error{
		"lock":    func(z *scene) error { return z.x("a") },
		"read":    func(z *scene) error { return z.s("a") },
		"permits": func(z *scene) error { return z.p("a", 2) },
		"latch":   func(z *scene) error { z.latch = true; _, err := z.a.SetCount(z.ctx, z.name, 3); return err },
		"limit":   func(z *scene) error { return z.SetLimit(z.ctx, z.name, 2) },
	}},
	"free": {func(z *scene) error { return errors.Join(z.x("a"), z.release("a", 0)) }, map[string]func(z *scene) error{
		"lock":    func(z *scene) error { return z.x("b") },
		"read":    func(z *scene) error { return z.s("b") },
		"permits": func(z *scene) error { return z.p("b", 2) },
		"latch":   func(z *scene) error { z.latch = true; _, err := z.b.SetCount(z.ctx, z.name, 3); return err },
		"release": func(z *scene) error { return z.release("a", 0) },
	}},
	"held": {func(z *scene) error { return z.x("a") }, map[string]func(z *scene) error{
		"release":       func(z *scene) error { return z.release("a", 0) },
		"release, kept": func(z *scene) error { return z.release("a", time.Second) },
		"cancel":        func(z *scene) error { return z.cancel("a") },
		"renew":         func(z *scene) error { return z.renew("a") },
		"ask again":     func(z *scene) error { return z.x("a") },
		"wait":          func(z *scene) error { return z.x("b") },
		"reader waits":  func(z *scene) error { return z.s("b") },
		"break":         func(z *scene) error { return z.Break(z.ctx, z.name, z.ids["a"].Token) },
		"adopt":         func(z *scene) error { return z.adopt("a", "b") },
		"downgrade":     func(z *scene) error { return z.a.Downgrade(z.ctx, z.ids["a"]) },
	}},
	"held and waited for": {func(z *scene) error { return errors.Join(z.x("a"), z.x("b"), z.x("c")) }, handOver},
	"the first is gone":   {func(z *scene) error { return errors.Join(z.x("a"), z.x("d"), z.x("b"), z.x("c")) }, handOver},
	"readers wait": {func(z *scene) error { return errors.Join(z.x("a"), z.s("b"), z.s("d"), z.s("c"), z.x("b2")) },
		handOver},
	"its lease is over": {func(z *scene) error {
		err := errors.Join(z.x("a"), z.x("b"), z.x("c"))
		z.later(z.t, 50*time.Second)
		err = errors.Join(err, z.renew("b", "c"))
		z.later(z.t, 50*time.Second)
		return err
	}, map[string]func(z *scene) error{
		"renew a place":  func(z *scene) error { return z.renew("b") },
		"ask":            func(z *scene) error { return z.x("a2") },
		"ask, a reader":  func(z *scene) error { return z.s("a2") },
		"inspect":        func(z *scene) error { _, err := z.Inspect(z.ctx, z.name); return err },
		"cancel a place": func(z *scene) error { return z.cancel("b") },
		"release":        func(z *scene) error { return z.release("a", 0) },
	}},
	"readers hold": {func(z *scene) error { return errors.Join(z.s("a"), z.s("b"), z.x("c"), z.s("a2")) },
		map[string]func(z *scene) error{
			"release":        func(z *scene) error { return z.release("a", 0) },
			"release, kept":  func(z *scene) error { return z.release("a", time.Second) },
			"cancel":         func(z *scene) error { return z.cancel("b") },
			"cancel a place": func(z *scene) error { return z.cancel("c") },
			"renew":          func(z *scene) error { return z.renew("a", "b") },
			"break":          func(z *scene) error { return z.Break(z.ctx, z.name, z.ids["a"].Token) },
			"adopt":          func(z *scene) error { return z.adopt("a", "c") },
			"wait":           func(z *scene) error { return z.s("b2") },
		}},
	"the last reader": {func(z *scene) error { return errors.Join(z.s("a"), z.x("b"), z.s("c")) }, handOver},
	"permits": {func(z *scene) error {
		return errors.Join(z.p("a", 1), z.p("b", 1), z.p("d", 2), z.p("c", 1), z.p("a2", 1))
	}, map[string]func(z *scene) error{
		"release":        func(z *scene) error { return z.release("a", 0) },
		"release, kept":  func(z *scene) error { return z.release("a", time.Second) },
		"cancel":         func(z *scene) error { return z.cancel("b") },
		"cancel a place": func(z *scene) error { return z.cancel("d") },
		"renew":          func(z *scene) error { return z.renew("a", "b", "c") },
		"break":          func(z *scene) error { return z.Break(z.ctx, z.name, z.ids["a"].Token) },
		"more":           func(z *scene) error { return z.SetLimit(z.ctx, z.name, 5) },
		"adopt":          func(z *scene) error { return z.adopt("a", "c") },
	}},
	"a large permit": {func(z *scene) error { return errors.Join(z.p("a", 2), z.p("b", 1), z.p("c", 1)) }, handOver},
	"permits to give back": {func(z *scene) error {
		return errors.Join(z.p("a", 2), z.p("d", 1), z.p("b", 1), z.p("c", 1))
	}, map[string]func(z *scene) error{
		"reduce": func(z *scene) error { return z.a.Reduce(z.ctx, z.ids["a"], 1) },
	}},
	"a limit is set": {func(z *scene) error { return z.SetLimit(z.ctx, z.name, 2) }, map[string]func(z *scene) error{
		"permits": func(z *scene) error { return z.ask("a", driver.Permits, 2, 0, 0) },
		"wait":    func(z *scene) error { return z.ask("a", driver.Permits, 3, 0, 0) },
		"more":    func(z *scene) error { return z.SetLimit(z.ctx, z.name, 5) },
		"remove":  func(z *scene) error { return z.SetLimit(z.ctx, z.name, 0) },
	}},
	"kept, and waited for": {func(z *scene) error {
		return errors.Join(z.ask("a", driver.Exclusive, 1, 0, time.Minute), z.x("b"))
	}, map[string]func(z *scene) error{
		"release": func(z *scene) error { return z.release("a", 0) },
		"cancel":  func(z *scene) error { return z.cancel("a") },
		"break":   func(z *scene) error { return z.Break(z.ctx, z.name, z.ids["a"].Token) },
	}},
	"a latch": {func(z *scene) error {
		z.latch = true
		_, err := z.a.SetCount(z.ctx, z.name, 2)
		_, err2 := z.a.CountDown(z.ctx, z.name, "one")
		return errors.Join(err, err2, z.await("b"), z.await("c"))
	}, map[string]func(z *scene) error{
		"count":       func(z *scene) error { _, err := z.a.CountDown(z.ctx, z.name, "two"); return err },
		"count again": func(z *scene) error { _, err := z.a.CountDown(z.ctx, z.name, "one"); return err },
		"await":       func(z *scene) error { return z.await("b") },
		"cancel":      func(z *scene) error { return z.cancel("b") },
		"remove":      func(z *scene) error { return z.RemoveLatch(z.ctx, z.name) },
	}},
}

// handOver are the requests that may hand a name over.
var handOver = map[string]func(z *scene) error{
	"release":        func(z *scene) error { return z.release("a", 0) },
	"release, kept":  func(z *scene) error { return z.release("a", time.Second) },
	"cancel":         func(z *scene) error { return z.cancel("a") },
	"cancel a place": func(z *scene) error { return z.cancel("b") },
	"break":          func(z *scene) error { return z.Break(z.ctx, z.name, z.ids["a"].Token) },
	"renew":          func(z *scene) error { return z.renew("a") },
	"renew a place":  func(z *scene) error { return z.renew("b") },
	"wait":           func(z *scene) error { return z.x("c2") },
}

func (z *scene) await(letter string) error {
	h, known := z.ids[letter]
	if !known {
		h = driver.Hold{Name: z.name, ID: newID()}
		z.ids[letter] = h
	}
	_, err := z.session(letter).Await(z.ctx, z.name, h.ID)
	return err
}

// adopt lets the session of one letter adopt the grant of another, under a new ID that begins with
// its letter.
func (z *scene) adopt(from, by string) error {
	h := driver.Hold{Name: z.name, ID: newID(), Token: z.ids[from].Token}
	z.ids[by+"3"] = h
	return z.session(by).Adopt(z.ctx, z.ids[from], h.ID, "{}")
}

// passes are the scenes in which a name is handed over.
var passes = map[string]bool{
	"held and waited for": true, "the first is gone": true, "readers wait": true, "the last reader": true,
	"a large permit": true, "permits": true, "permits to give back": true, "kept, and waited for": true, "a latch": true,
}

// readers are the commands of the scripts that change nothing.
var readers = map[string]bool{
	"GET": true, "EXISTS": true, "PTTL": true, "TIME": true, "TYPE": true, "HGET": true, "HEXISTS": true, "HLEN": true,
	"HGETALL": true, "HSCAN": true, "LINDEX": true, "LPOS": true, "LRANGE": true, "ZCARD": true, "ZCOUNT": true,
	"ZRANK": true, "ZSCORE": true, "ZRANGE": true, "ZRANGEBYSCORE": true, "ZRANGEBYLEX": true, "ZRANDMEMBER": true,
	"PUBSUB": true,
}

// TestAborted lets each script fail at each of its steps. Every published grant must then be on
// record, no lock may have two holders, and the name must stay usable. Unless it runs at full size,
// it takes some of the steps, see sampled, and for a Cluster only scenes with a hand-over.
func TestAborted(t *testing.T) {
	t.Parallel()
	for _, kind := range []kind{server, cluster, formatted, formattedCluster, fair} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := newStepped(t, kind, testenv.Redis(t).Addr)
			for where, p := range scenes {
				if !testenv.Deep() && kind == cluster && !passes[where] {
					continue
				}
				for what, do := range p.do {
					_, names := s.failAt(t, where, what, 0, do)
					all := testenv.Deep() // a failure may lead to further steps
					for n, failed := 1, true; (all && failed || n <= len(names)) && !t.Failed(); n++ {
						if n > 400 {
							t.Fatalf("%s: %s: no end", where, what)
						}
						if all || sampled(kind, where, names, n) {
							failed, _ = s.failAt(t, where, what, n, do)
						}
					}
				}
			}
		})
	}
}

// sampled reports whether the test command lets step n of a script with these commands fail. Where a
// name is handed over, that is each step that writes or publishes, and every fourth of the others: a
// step that only reads fails with the same keys as the next one. In other scenes it is every third
// step, for Redisson's format, whose scripts have twice the steps, every fourth, and for its fair locks
// and in a Cluster every ninth.
func sampled(kind kind, where string, names []string, n int) bool {
	switch {
	case kind == formatted:
		return n%4 == 1
	case kind == fair, kind == formattedCluster:
		return n%9 == 1
	case !passes[where]:
		return n%3 == 1
	case kind == cluster && n%2 == 0:
		return false
	}
	return n%4 == 1 || n == len(names) || !readers[names[n-1]]
}

// failAt prepares a scene, lets step n of what do does fail, or none if n is 0, and looks for what is
// wrong then. It returns whether there was such a step, and the commands of all steps if n is 0.
func (s *stepped) failAt(t *testing.T, where, what string, n int, do func(z *scene) error) (failed bool,
	names []string) {
	t.Helper()
	z := &scene{stepped: s, t: t, name: fmt.Sprintf("%s/%s/%d/%s", where, what, n, newID()), ids: map[string]driver.Hold{}}
	if err := scenes[where].prepare(z); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	s.do(t, "DEL", "step:published", "step:failed", "step:names")
	s.do(t, "SET", "step:at", strconv.Itoa(n))
	err := do(z)
	s.do(t, "DEL", "step:at")
	step, _ := s.do(t, "GET", "step:failed").ToString()
	failed = step != ""
	if n == 0 {
		names, _ = s.do(t, "LRANGE", "step:names", "0", "-1").AsStrSlice()
	}
	if !failed && err != nil && !errors.Is(err, driver.ErrGone) && !errors.Is(err, driver.ErrTaken) &&
		!errors.Is(err, driver.ErrKind) {
		t.Fatalf("%s: %s: %v", where, what, err)
	}
	if wrong := z.wrong(); wrong != "" {
		t.Errorf("%s: %s, which failed at step %d (%s): %s", where, what, n, step, wrong)
	}
	return failed, names
}
