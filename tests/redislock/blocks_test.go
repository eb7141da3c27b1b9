package redislock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// ahead is how far the last token of a block may be ahead of the server's clock, in microseconds.
const ahead = 20_000

// blocksAt are the grants of one name by a server whose clock stands, unless the test moves it.
type blocksAt struct {
	*testing.T
	driver.Session
	b             *redislock.Backend
	client        rueidis.Client
	clock, last   uint64
	whole, single int // grants
}

func newBlocksAt(t *testing.T) *blocksAt {
	client := rawClient(t, testenv.Redis(t).Addr)
	b := newEdited(rueidisconn.New(client), nil, func(_, text string) string {
		return strings.ReplaceAll(text, "redis.call('TIME')", "redis.call('HMGET', 'clock', 's', 'u')")
	})
	x := &blocksAt{T: t, Session: openSession(t, b, long), b: b, client: client}
	x.set(1_700_000_000_000_000)
	return x
}

// set sets the clock.
func (x *blocksAt) set(us uint64) {
	x.Helper()
	x.clock = us
	cmd := x.client.B().Hset().Key("clock").FieldValue().FieldValue("s", fmt.Sprint(us/1e6)).
		FieldValue("u", fmt.Sprint(us%1e6)).Build()
	if err := x.client.Do(within(x, soon), cmd).Error(); err != nil {
		x.Fatal(err)
	}
}

// sees checks a grant of r: all its tokens are new, it has them all if and only if there is room for them,
// and it is the one on record.
func (x *blocksAt) sees(how string, r *driver.Request, token uint64) driver.Hold {
	x.Helper()
	n := uint64(r.Granted(token, x.b.Kinds()))
	if token < x.last+n || token == 0 {
		x.Fatalf("%s: %d tokens up to %d, after %d", how, n, token, x.last)
	}
	least := max(x.clock, x.last+uint64(r.Block()))
	switch room := least+least%2 <= x.clock+ahead; {
	case n > 1 && !room:
		x.Errorf("%s: a block up to %d, %d after the clock", how, token, int64(token-x.clock))
	case n == 1 && r.Block() > 1 && room:
		x.Errorf("%s: one token, %d, although %d have room at %d, after %d", how, token, r.Block(), x.clock, x.last)
	case n == 1 && token > max(x.clock, x.last)+2:
		x.Errorf("%s: token %d at %d, after %d", how, token, x.clock, x.last)
	}
	if x.last = token; n > 1 {
		x.whole++
	} else if r.Block() > 1 {
		x.single++
	}
	x.recorded(how, r, token)
	return driver.Hold{Name: r.Name, ID: r.ID, Token: token}
}

// recorded checks that the store tells the same token again.
func (x *blocksAt) recorded(how string, r *driver.Request, token uint64) {
	x.Helper()
	if again := acquire(x, x, r); again.Token != token {
		x.Fatalf("%s: token %d; asked again: %d", how, token, again.Token)
	}
	changes, err := x.Renew(within(x, soon), []driver.Hold{{Name: r.Name, ID: r.ID}})
	if err != nil || len(changes) != 1 || changes[0].State != driver.Granted || changes[0].Token != token {
		x.Fatalf("%s: token %d; the renewal of a waiter that has not heard of it: %+v, %v", how, token, changes, err)
	}
}

func (x *blocksAt) ask(n int) *driver.Request {
	r := exclusive("x")
	r.Tokens, r.CallBack = n, true
	return r
}

func (x *blocksAt) release(h driver.Hold) {
	x.Helper()
	if err := x.Release(within(x, soon), h, 0); err != nil {
		x.Fatal(err)
	}
}

// both checks that there were blocks and single tokens since the last call.
func (x *blocksAt) both(how string) {
	x.Helper()
	if x.whole == 0 || x.single == 0 {
		x.Errorf("%s: %d blocks and %d single tokens; want both", how, x.whole, x.single)
	}
	x.whole, x.single = 0, 0
}

// TestBlocksOfAClock: the tokens of a block end at most 20 ms after the clock, in whichever way a grant is
// made; if a block has no room, the grant has one token.
func TestBlocksOfAClock(t *testing.T) {
	t.Parallel()
	x := newBlocksAt(t)
	free := func(how string, rounds int) {
		for i := range rounds {
			r := x.ask([]int{driver.MaxCallBackTokens, 2, 700, 0, 3}[i%5])
			x.release(x.sees(how, r, acquire(t, x, r).Token))
		}
	}
	free("free", 40) // at first by acquire.lua, then by take.lua
	x.both("free")
	x.set(x.clock + 2*ahead)
	free("free later", 15)
	x.both("free later")

	for how, end := range map[string]func(h driver.Hold) error{
		"release":                    func(h driver.Hold) error { return x.Release(within(t, soon), h, 0) },
		"cancel":                     func(h driver.Hold) error { return x.Cancel(within(t, soon), h.Name, h.ID) },
		"break":                      func(h driver.Hold) error { return x.b.Break(within(t, soon), h.Name, h.Token) },
		"release by the full script": func(h driver.Hold) error { return x.Release(within(t, soon), h, time.Microsecond) },
	} {
		x.set(x.clock + 3*ahead)
		r := x.ask(1)
		h := x.sees(how, r, acquire(t, x, r).Token)
		var line []*driver.Request
		var replies []driver.Reply
		for i := range 12 {
			line = append(line, x.ask([]int{driver.MaxCallBackTokens, 5000, 0}[i%3]))
			replies = append(replies, acquire(t, x, line[i]))
		}
		for i, r := range line {
			if i == 8 { // what counts is the clock at the hand-over, not when the request came
				x.set(x.clock + ahead)
			}
			if err := end(h); err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			token := woken(t, replies[i])
			if token == 0 { // kept for a microsecond
				x.set(x.clock + 10)
				token = acquire(t, x, r).Token
			}
			h = x.sees(how, r, token)
		}
		x.release(h)
		x.both(how)
	}

	// The clock of a replica that was promoted is behind: grants have one token until it has caught up.
	x.set(x.clock - 1_000_000)
	free("the clock is behind", 20)
	if x.whole > 0 {
		t.Errorf("%d blocks far ahead of the clock", x.whole)
	}
	x.set(x.clock + 1_000_000 + ahead)
	free("the clock has caught up", 5)
	x.both("the clock is behind")
}

// TestBlocksInTurn: however many sessions take blocks in turn as fast as they can, their last token is
// close to the server's clock.
func TestBlocksInTurn(t *testing.T) {
	t.Parallel()
	const sessions, each = 6, 150
	client := rawClient(t, testenv.Redis(t).Addr)
	var mu sync.Mutex
	worst, last, singles := int64(0), uint64(0), 0
	var all sync.WaitGroup
	for range sessions {
		b := redislock.New(rueidisconn.New(client), nil)
		s := openSession(t, b, long)
		all.Go(func() {
			for i := range each {
				r := exclusive("x")
				r.Tokens, r.CallBack = driver.MaxCallBackTokens, true
				if i%3 == 2 {
					r.Tokens = 100
				}
				token, err := waitFor(s, r)
				after, err2 := clockOf(client)
				if err != nil || err2 != nil {
					t.Error(err, err2)
					return
				}
				mu.Lock()
				n := r.Granted(token, b.Kinds())
				if token < last+uint64(n) {
					t.Errorf("%d tokens up to %d, after %d", n, token, last)
				}
				if last = token; n == 1 {
					singles++
				}
				worst = max(worst, int64(token)-after) // the grant was before
				mu.Unlock()
				if err := s.Release(context.Background(), driver.Hold{Name: r.Name, ID: r.ID, Token: token}, 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d µs ahead at most; %d of %d grants had one token", worst, singles, sessions*each)
	// A grant with one token adds two at most. That takes the server longer than two microseconds.
	if worst > ahead+2 {
		t.Errorf("a token was %d µs ahead of the server's clock; want at most %d", worst, ahead)
	}
}

// TestBlocksOverFailover: a replica that knows none of the blocks that were given within an instant, and is
// promoted 40 ms later, gives none of their tokens again.
func TestBlocksOverFailover(t *testing.T) {
	t.Parallel()
	const clock = 1_700_000_000_000_000
	at := func(r *testenv.RedisServer, now int64) (driver.Session, driver.Kinds) {
		b := newEdited(dialRueidis(t, r.Addr), nil, func(_, text string) string {
			return strings.ReplaceAll(text, "redis.call('TIME')", fmt.Sprintf("{'%d', '%d'}", now/1e6, now%1e6))
		})
		return openSession(t, b, long), b.Kinds()
	}
	take := func(s driver.Session, k driver.Kinds, n int) (first, last uint64) {
		r := exclusive("x")
		r.Tokens, r.CallBack = n, true
		h := granted(t, s, r)
		if err := s.Release(within(t, soon), h, 0); err != nil {
			t.Fatal(err)
		}
		return h.Token - uint64(r.Granted(h.Token, k)) + 1, h.Token
	}
	set := testenv.RedisReplicas(t, 1)
	s, k := at(set.Primary, clock)
	_, known := take(s, k, 1)
	confirm(t, set.Primary)
	set.Cut(0)
	lost := known
	for range 10 {
		_, lost = take(s, k, driver.MaxCallBackTokens)
	}
	if lost <= known+driver.MaxCallBackTokens {
		t.Fatalf("tokens up to %d were lost, after %d; want a block", lost, known)
	}
	set.Primary.Kill()
	set.Promote(0)
	s, k = at(set.Replicas[0], clock+40_000)
	if first, _ := take(s, k, driver.MaxCallBackTokens); first <= lost {
		t.Errorf("token %d after %d, which the failover lost", first, lost)
	}
}

// waitFor returns the token of a grant.
func waitFor(s driver.Session, r *driver.Request) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	for {
		reply, err := s.Acquire(ctx, r)
		if err != nil || reply.Token != 0 {
			return reply.Token, err
		}
		select {
		case token := <-reply.Wake:
			if token != 0 {
				return token, nil
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// clockOf returns what a server's clock shows, in microseconds.
func clockOf(client rueidis.Client) (int64, error) {
	t, err := client.Do(context.Background(), client.B().Time().Build()).AsIntSlice()
	if err != nil || len(t) != 2 {
		return 0, fmt.Errorf("TIME: %v, %w", t, err)
	}
	return t[0]*1e6 + t[1], nil
}
