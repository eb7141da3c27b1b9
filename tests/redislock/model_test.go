package redislock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"pgregory.net/rapid"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/modeltest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// TestModel compares the scripts, and the code around them, with package rule.
func TestModel(t *testing.T) {
	client := rawClient(t, testenv.Existing(t))
	for _, kind := range []kind{server, cluster, oldCluster} {
		t.Run(string(kind), func(t *testing.T) {
			modeltest.Check(t, 2, func(t *rapid.T) modeltest.Store { return model(t, client, kind, nil) })
		})
	}
}

// kind is what a Conn claims to lead to. The scripts of a Cluster and sharded channels also work on
// one server.
type kind string

const (
	server     kind = "server"
	cluster    kind = "cluster"
	oldCluster kind = "cluster without sharded channels"
	formatted  kind = "Redisson's keys"
	fair       kind = "Redisson's keys with the queue of an RFairLock"

	formattedCluster kind = "Redisson's keys in a Cluster"
)

// shared reports whether the lock table keeps Redisson's keys.
func (k kind) shared() bool { return k == formatted || k == fair || k == formattedCluster }

// TestModelCatches breaks the scripts in ways that the comparison must notice.
func TestModelCatches(t *testing.T) {
	client := rawClient(t, testenv.Existing(t))
	catches := func(t *testing.T, on kind, old, new string) {
		modeltest.Catches(t, 4, 10, func(t *rapid.T) modeltest.Store {
			return model(t, client, on, func(text string) string { return strings.ReplaceAll(text, old, new) })
		})
	}
	var all strings.Builder
	b := newEdited(rueidisconn.New(client), nil, func(_, text string) string {
		all.WriteString(text)
		return text
	})
	t.Cleanup(func() { _ = b.Close() })
	// Bugs that take hundreds of histories to find are tested at full size only.
	hard := map[string]bool{
		"an expired grant is renewed": true, "a latch at zero wakes no waiter": true,
		"a fast take forgets a minimum hold": true,
		"a fast hand-over grants a full TTL": true,
		"a fast hand-over gives one token":   true, "a kept grant is overwritten": true,
		"no waiter learns how long a name is kept": true,
	}
	for _, m := range []struct{ what, old, new string }{
		{"newcomers ignore the queue", "if not line and fits(mode, n)", "if fits(mode, n)"},
		{"a hand-over gets a full TTL", "give(id, mode, n, deadline, hold, owner)",
			"give(id, mode, n, now + 1000000, hold, owner)"},
		{"the queue is served from its end", "call('ZRANGEBYSCORE', KZ, 1, LINE, 'LIMIT', 0, 1)[1]",
			"call('ZREVRANGEBYSCORE', KZ, LINE, 1, 'LIMIT', 0, 1)[1]"},
		{"dead waiters stay", "for _, w in ipairs(call('ZRANGEBYSCORE', KZ, LINE, fmt('%.0f', now))) do",
			"for _, w in ipairs({}) do"},
		{"an expired grant is renewed", "if exp > now and field(tail, 1) == id and (token",
			"if field(tail, 1) == id and (token"},
		{"a minimum hold is forgotten", "local k = hold > 0 and now + hold or 0", "local k = 0"},
		{"cancel keeps the grant", "else dropHold(id, n) end", "end"},
		{"tokens repeat", "or max(now, last + n), now))", "or max(now, last), now))"},
		{"an adopted permit keeps its id", "putHold(new, t, till", "putHold(id, t, till"},
		{"an adopted mutex keeps its id", "len2(new) .. session", "len2(id) .. session"},
		{"no waiter learns how long a name is kept", "notify(field(o, 1), first, 0)", ""},
		{"the lock goes to a waiter that is gone", "local there = subscribed(session)", "local there = true"},
		{"a broken latch wakes no waiter", "notifyAll(0)", ""},
		{"a latch at zero wakes no waiter", "notifyAll(1)", ""},
		{"a fast take forgets a minimum hold", "now .. ARGV[4 * i - 3] .. now",
			"now .. string.sub(ARGV[4 * i - 3], 1, 16) .. '0000000000000000' .. now"},
		{"a block is one token", "mode == 'x' and max(n, 1) or 1", "1"},
		{"a fast hand-over gives one token", "if n and n > 1 then", "if false then"},
		{"a fast hand-over grants a full TTL", ".. token .. sub(w, 1, 16) .. zero .. zero ..",
			".. token .. '0000000001000000' .. zero .. zero .."},
		{"a kept grant is overwritten", "setAside(id)\n    st =", "st ="},
	} {
		if !strings.Contains(all.String(), m.old) {
			t.Errorf("%s: the scripts have no text %q", m.what, m.old)
		} else if testenv.Deep() || !hard[m.what] {
			t.Run(m.what, func(t *testing.T) { catches(t, server, m.old, m.new) })
		}
	}
	for _, m := range []struct{ what, old, new string }{
		{"the lock goes to a waiter that is gone", "local there = subscribed(session)", "local there = true"},
		{"another shard's channel", "sub(KT, 1, -2) .. 's:'", "sub(KT, 1, -2) .. 't:'"},
	} {
		t.Run("cluster: "+m.what, func(t *testing.T) { catches(t, cluster, m.old, m.new) })
	}
}

// clockKey stands for the server's clock in all histories, so that the scripts are the same.
var clockKey = "hf:" + newID()

// model opens a store with a prefix of its own, and a clock that the history moves.
func model(t *rapid.T, client rueidis.Client, kind kind, edit func(string) string) modeltest.Store {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var now atomic.Int64
	pass := func(d time.Duration) {
		us := time.Duration(now.Add(int64(d))).Microseconds()
		must(client.Do(ctx, client.B().Hset().Key(clockKey).FieldValue().
			FieldValue("s", strconv.FormatInt(us/1e6, 10)).FieldValue("u", strconv.FormatInt(us%1e6, 10)).Build()).Error())
	}
	pass(1_700_000_000 * time.Second)
	prefix := "hf:" + newID() + ":"
	c := &tapped{Conn: rueidisconn.New(client), kind: kind, taps: map[string]*tap{}, lost: map[string]bool{}}
	c.b = newEdited(c, &redislock.Config{Prefix: prefix}, func(_, text string) string {
		if edit != nil {
			text = edit(text)
		}
		return strings.ReplaceAll(text, "redis.call('TIME')", "redis.call('HMGET', '"+clockKey+"', 's', 'u')")
	})
	hook.RedisListenEarly(c.b) // so that the answer that gets lost is the one that counts
	hook.RedisClock(c.b, func() time.Duration { return time.Duration(now.Load()) })
	t.Cleanup(func() { must(c.b.Close()) })
	marks := 0
	death := modeltest.Skipped
	if kind == oldCluster {
		death = modeltest.Unnoticed
	}
	return modeltest.Store{
		Backend: c.b,
		Pass:    pass,
		Drop:    c.drop.Store,
		Lose: func(session string, lost bool) {
			c.mu.Lock()
			c.lost[session] = lost
			c.mu.Unlock()
			for _, tap := range c.of(session) {
				tap.lose(lost)
			}
		},
		Settle: func() {
			marks++
			mark := strconv.Itoa(marks)
			var all rueidis.Commands
			taps := c.of("")
			for channel, tap := range taps {
				if tap.shard {
					all = append(all, client.B().Spublish().Channel(channel).Message(markWord+mark).Build())
				} else {
					all = append(all, client.B().Publish().Channel(channel).Message(markWord+mark).Build())
				}
			}
			for _, r := range client.DoMulti(ctx, all...) {
				must(r.Error())
			}
			for _, tap := range taps {
				must(tap.wait(ctx, mark))
			}
		},
		Kill: func(session string) {
			for channel, tap := range c.of(session) {
				tap.stop()
				for {
					count := client.B().PubsubNumsub().Channel(channel).Build()
					if tap.shard {
						count = client.B().PubsubShardnumsub().Channel(channel).Build()
					}
					n, err := client.Do(ctx, count).ToArray()
					must(err)
					left, err := n[1].AsInt64()
					must(err)
					if left == 0 {
						break
					}
				}
			}
		},
		Death:   death,
		Restart: func() { must(client.Do(ctx, client.B().ScriptFlush().Build()).Error()) },
	}
}

// tapped is a Conn whose answers and messages can get lost.
type tapped struct {
	redislock.Conn
	b    *redislock.Backend
	kind kind
	drop atomic.Bool
	mu   sync.Mutex
	taps map[string]*tap // by channel
	lost map[string]bool // sessions whose messages get lost
}

func (c *tapped) Cluster() bool { return c.kind != server }

// of returns the taps of a session, or all.
func (c *tapped) of(session string) map[string]*tap {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]*tap{}
	for channel, tap := range c.taps {
		if session == "" || strings.HasSuffix(channel, "s:"+session) {
			all[channel] = tap
		}
	}
	return all
}

func (c *tapped) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	v, err := c.Conn.Run(ctx, s, keys, args)
	if err == nil && c.drop.Load() && hook.RedisAnswered(c.b, s, v) {
		return redislock.Value{}, driver.ErrUncertain
	}
	return v, err
}

func (c *tapped) RunAll(ctx context.Context, calls []redislock.Call) []redislock.Result {
	all := c.Conn.RunAll(ctx, calls)
	for i, r := range all {
		if r.Err == nil && c.drop.Load() && hook.RedisAnswered(c.b, calls[i].Script, r.Value) {
			all[i] = redislock.Result{Err: driver.ErrUncertain}
		}
	}
	return all
}

func (c *tapped) RunWait(ctx context.Context, calls []redislock.Call, _ int, _ time.Duration) (
	[]redislock.Result, int, error) {
	return c.RunAll(ctx, calls), 0, nil // a server without replicas
}

func (c *tapped) Subscribe(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	return c.tap(ctx, channel, message, again, c.Conn.Subscribe, false)
}

func (c *tapped) SubscribeShard(ctx context.Context, channel string, message func(string), again func()) (
	func(), error) {
	if c.kind == oldCluster {
		return nil, fmt.Errorf("%w: ERR unknown command 'SSUBSCRIBE'", driver.ErrRefused)
	}
	return c.tap(ctx, channel, message, again, c.Conn.SubscribeShard, true)
}

type subscribe func(ctx context.Context, channel string, message func(string), again func()) (func(), error)

func (c *tapped) tap(ctx context.Context, channel string, message func(string), again func(), subscribe subscribe,
	shard bool) (func(), error) {
	tap := &tap{message: message, again: again, shard: shard, marks: make(chan string, 1), gone: make(chan struct{})}
	stop, err := subscribe(ctx, channel, tap.hear, again)
	tap.stop = sync.OnceFunc(func() {
		c.mu.Lock()
		delete(c.taps, channel)
		c.mu.Unlock()
		stop()
		close(tap.gone)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taps[channel] = tap
	for session, lost := range c.lost {
		if strings.HasSuffix(channel, "s:"+session) {
			tap.lost.Store(lost)
		}
	}
	return tap.stop, err
}

// tap is between the server and one session.
type tap struct {
	message func(string)
	again   func()
	stop    func()
	shard   bool // the channel is sharded
	lost    atomic.Bool
	marks   chan string
	gone    chan struct{} // closed when it has stopped
}

const markWord = "mark " // begins a message that shows how far the others have arrived

func (p *tap) hear(payload string) {
	if mark, ok := strings.CutPrefix(payload, markWord); ok {
		p.marks <- mark
	} else if !p.lost.Load() {
		p.message(payload)
	}
}

// lose lets messages get lost, or ends that and notifies the session.
func (p *tap) lose(lost bool) {
	if p.lost.Store(lost); !lost {
		p.again()
	}
}

func (p *tap) wait(ctx context.Context, mark string) error {
	select {
	case m := <-p.marks:
		if m != mark {
			return fmt.Errorf("mark %s; want %s", m, mark)
		}
		return nil
	case <-p.gone: // its session waits for nothing any more
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
