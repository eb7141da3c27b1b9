package redislock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"pgregory.net/rapid"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/modeltest"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// TestModel compares the scripts, and what is around them, with package rule.
func TestModel(t *testing.T) {
	client := rawClient(t, testenv.Existing(t))
	for _, uncounted := range []bool{false, true} {
		t.Run(fmt.Sprintf("uncounted=%v", uncounted), func(t *testing.T) {
			modeltest.Check(t, 2, func(t *rapid.T) modeltest.Store { return model(t, client, uncounted, nil) })
		})
	}
}

// TestModelCatches breaks the scripts in ways that the comparison must notice.
func TestModelCatches(t *testing.T) {
	client := rawClient(t, testenv.Existing(t))
	for _, m := range []struct{ what, old, new string }{
		{"newcomers ignore the line", "if not line and fits(mode, n)", "if fits(mode, n)"},
		{"a hand-over gets a full TTL", "give(id, mode, n, deadline, hold, owner)", "give(id, mode, n, now + 1000000, hold, owner)"},
		{"the line is served from its end", "call('ZRANGEBYSCORE', KZ, 1, LINE, 'LIMIT', 0, 1)[1]", "call('ZREVRANGEBYSCORE', KZ, LINE, 1, 'LIMIT', 0, 1)[1]"},
		{"dead waiters stay", "for _, w in ipairs(call('ZRANGEBYSCORE', KZ, LINE, fmt('%.0f', now))) do", "for _, w in ipairs({}) do"},
		{"what has run out is renewed", "if exp > now and field(tail, 1) == id and (token", "if field(tail, 1) == id and (token"},
		{"a minimum hold is forgotten", "local k = hold > 0 and now + hold or 0", "local k = 0"},
		{"cancel keeps the grant", "if t and e > now then dropHold(id, n) end", ""},
		{"tokens repeat", "local token = max(now, last + 1)", "local token = max(now, last)"},
		{"an adopted permit keeps its id", "putHold(new, t, till", "putHold(id, t, till"},
		{"an adopted mutex keeps its id", "len2(new) .. session", "len2(id) .. session"},
		{"nobody is told how long a name is kept", "tell(field(o, 1), first, 0)", ""},
		{"the lock goes to who is not there", "last) == 0 and", "last) < 0 and"},
		{"a broken latch wakes nobody", "rouse(0)", ""},
		{"a latch at zero wakes nobody", "rouse(1)", ""},
		{"a lean take forgets a minimum hold", "now .. ARGV[3 * i - 2] .. now", "now .. string.sub(ARGV[3 * i - 2], 1, 16) .. '0000000000000000' .. now"},
		{"a lean release does not look at the token", "'X0' .. ARGV[2 * i - 1]", "string.sub(v, 1, 18)"},
		{"a lean hand-over grants a full TTL", ".. now .. sub(w, 1, 16) .. zero .. zero ..", ".. now .. '0000000001000000' .. zero .. zero .."},
		{"a kept grant is overwritten", "setAside(id)\n    st =", "st ="},
	} {
		t.Run(m.what, func(t *testing.T) {
			var changed atomic.Bool
			modeltest.Catches(t, 4, func(t *rapid.T) modeltest.Store {
				return model(t, client, false, func(text string) string {
					if strings.Contains(text, m.old) {
						changed.Store(true)
					}
					return strings.ReplaceAll(text, m.old, m.new)
				})
			})
			if !changed.Load() {
				t.Error("the scripts have no such text")
			}
		})
	}
}

// clockKey stands for the server's clock in all histories, so that the scripts are the same.
var clockKey = "hf:" + newID()

// model opens a store with a prefix of its own, on a clock that the history moves.
func model(t *rapid.T, client rueidis.Client, uncounted bool, edit func(string) string) modeltest.Store {
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
	c := &tapped{Conn: rueidisconn.New(client), taps: map[string]*tap{}}
	c.b = redislock.NewEdited(c, &redislock.Config{Prefix: prefix, Uncounted: uncounted}, func(_, text string) string {
		if edit != nil {
			text = edit(text)
		}
		return strings.ReplaceAll(text, "redis.call('TIME')", "redis.call('HMGET', '"+clockKey+"', 's', 'u')")
	})
	c.b.SetClock(func() time.Duration { return time.Duration(now.Load()) })
	t.Cleanup(func() { must(c.b.Close()) })
	marks := 0
	death := modeltest.Skipped
	if uncounted {
		death = modeltest.Unnoticed
	}
	return modeltest.Store{
		Backend: c.b,
		Pass:    pass,
		Drop:    c.drop.Store,
		Lose:    func(session string, lost bool) { c.taps[prefix+"s:"+session].lose(lost) },
		Settle: func() {
			marks++
			mark := strconv.Itoa(marks)
			var all rueidis.Commands
			for channel := range c.taps {
				all = append(all, client.B().Publish().Channel(channel).Message(markWord+mark).Build())
			}
			for _, r := range client.DoMulti(ctx, all...) {
				must(r.Error())
			}
			for _, tap := range c.taps {
				must(tap.wait(ctx, mark))
			}
		},
		Kill: func(session string) {
			channel := prefix + "s:" + session
			c.taps[channel].stop()
			for {
				n, err := client.Do(ctx, client.B().PubsubNumsub().Channel(channel).Build()).ToArray()
				must(err)
				if left, err := n[1].AsInt64(); err != nil || left == 0 {
					must(err)
					return
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
	drop atomic.Bool
	taps map[string]*tap // by channel
}

func (c *tapped) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	v, err := c.Conn.Run(ctx, s, keys, args)
	if err == nil && c.drop.Load() && c.b.Answered(s, v) {
		return redislock.Value{}, driver.ErrUncertain
	}
	return v, err
}

func (c *tapped) RunAll(ctx context.Context, calls []redislock.Call) []redislock.Result {
	all := c.Conn.RunAll(ctx, calls)
	for i, r := range all {
		if r.Err == nil && c.drop.Load() && c.b.Answered(calls[i].Script, r.Value) {
			all[i] = redislock.Result{Err: driver.ErrUncertain}
		}
	}
	return all
}

func (c *tapped) Subscribe(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	tap := &tap{message: message, again: again, marks: make(chan string, 1)}
	stop, err := c.Conn.Subscribe(ctx, channel, tap.hear, again)
	tap.stop = func() {
		delete(c.taps, channel)
		stop()
	}
	c.taps[channel] = tap
	return tap.stop, err
}

// tap is what lies between the server and one session.
type tap struct {
	message func(string)
	again   func()
	stop    func()
	lost    atomic.Bool
	marks   chan string
}

const markWord = "mark " // begins a message that tells how far the others have arrived

func (p *tap) hear(payload string) {
	if mark, ok := strings.CutPrefix(payload, markWord); ok {
		p.marks <- mark
	} else if !p.lost.Load() {
		p.message(payload)
	}
}

// lose lets messages get lost, or tells the session that they do no longer.
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
	case <-ctx.Done():
		return ctx.Err()
	}
}
