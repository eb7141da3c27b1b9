package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// TestRule compares the scripts with package rule, step by step over random histories, on a
// clock that both read.
func TestRule(t *testing.T) {
	const histories, steps = 40, 150
	client := rawClient(t, testenv.Existing(t))
	for _, uncounted := range []bool{false, true} {
		for seed := range uint64(histories) {
			if err := compare(t, client, seed, steps, uncounted, nil); err != nil {
				t.Fatalf("seed %d, uncounted %v: %v", seed, uncounted, err)
			}
		}
	}
}

// TestRuleCatches breaks the scripts in ways that the comparison must notice.
func TestRuleCatches(t *testing.T) {
	const histories, steps = 40, 150
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
	} {
		t.Run(m.what, func(t *testing.T) {
			changed := 0
			edit := func(text string) string {
				if strings.Contains(text, m.old) {
					changed++
				}
				return strings.ReplaceAll(text, m.old, m.new)
			}
			for seed := range uint64(histories) {
				err := compare(t, client, seed, steps, false, edit)
				if changed == 0 {
					t.Fatal("the scripts have no such text")
				}
				if err != nil {
					return
				}
			}
			t.Error("not noticed")
		})
	}
}

// world is one history: the same requests to the server and to the rule.
type world struct {
	ctx      context.Context
	rnd      *rand.Rand
	client   rueidis.Client
	clock    string // the key that stands for the server's clock
	b        *redislock.Backend
	sessions []driver.Session
	ids      []string // of the sessions
	ttls     []time.Duration
	names    []string
	entries  []*rule.Entry
	now      time.Duration
	tokens   []map[uint64]uint64 // per name: the rule's to the server's
	tops     []uint64            // per name: the highest of the server's
	asked    []*asked
	pushed   chan rueidis.PubSubMessage
	prefix   string
	adopted  int
}

// asked is a request that was made.
type asked struct {
	name, session int
	req           driver.Request
	token         uint64 // the rule's
}

func compare(t *testing.T, client rueidis.Client, seed uint64, steps int, uncounted bool, edit func(string) string) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := &world{
		ctx: ctx, rnd: rand.New(rand.NewPCG(seed, 1)), client: client, prefix: "hf:" + newID() + ":",
		now: 1_700_000_000 * time.Second, pushed: make(chan rueidis.PubSubMessage, 4096),
	}
	w.clock = w.prefix + "clock"
	w.b = redislock.NewEdited(rueidisconn.New(client), &redislock.Config{Prefix: w.prefix, Uncounted: uncounted},
		func(_, text string) string {
			if edit != nil {
				text = edit(text)
			}
			return strings.ReplaceAll(text, "redis.call('TIME')", "redis.call('HMGET', '"+w.clock+"', 's', 'u')")
		})
	w.b.SetClock(func() time.Duration { return w.now })
	defer func() { _ = w.b.Close() }()
	ready := make(chan struct{}, 1)
	listen := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) {
		select {
		case ready <- struct{}{}:
		default:
		}
	})
	ears, release := client.Dedicate()
	defer release()
	go func() {
		_ = ears.Receive(listen, client.B().Psubscribe().Pattern(w.prefix+"s:*").Build(), func(m rueidis.PubSubMessage) { w.pushed <- m })
	}()
	<-ready
	for i := range 3 {
		id, ttl := newID(), []time.Duration{time.Second, time.Second, 3 * time.Second}[i]
		s, err := w.b.Open(ctx, driver.SessionConfig{ID: id, TTL: ttl})
		if err != nil {
			return err
		}
		w.sessions, w.ids, w.ttls = append(w.sessions, s), append(w.ids, id), append(w.ttls, ttl)
	}
	for i := range 2 {
		w.names = append(w.names, "n"+strconv.Itoa(i))
		w.entries = append(w.entries, &rule.Entry{Mint: func(last uint64) uint64 { return last + 1 }})
		w.tokens = append(w.tokens, map[uint64]uint64{})
		w.tops = append(w.tops, 0)
	}
	if err := w.tick(); err != nil {
		return err
	}
	// A script that the server does not know yet is run after the others of its pipeline.
	if _, err := w.sessions[0].Renew(ctx, []driver.Hold{{Name: "n", ID: "i", Token: 1}}); err != nil {
		return err
	}
	var log []string
	for range steps {
		what, err := w.step()
		log = append(log, what)
		if err == nil {
			err = w.inspect()
		}
		if err != nil {
			return fmt.Errorf("%w\nafter %s", err, strings.Join(log[max(0, len(log)-12):], "\n      "))
		}
	}
	return nil
}

func (w *world) tick() error {
	switch w.rnd.IntN(6) {
	case 0:
		w.now += time.Duration(w.rnd.IntN(3_000_000)) * time.Microsecond
	case 1, 2:
		w.now += time.Duration(w.rnd.IntN(8)) * 100 * time.Millisecond
	case 3:
		w.now += time.Duration(w.rnd.IntN(1000)) * time.Microsecond
	}
	us := w.now.Microseconds()
	return w.client.Do(w.ctx, w.client.B().Hset().Key(w.clock).FieldValue().
		FieldValue("s", strconv.FormatInt(us/1e6, 10)).FieldValue("u", strconv.FormatInt(us%1e6, 10)).Build()).Error()
}

// grants compares what was pushed since the last step with what the rule handed over.
func (w *world) grants(name int, want []rule.Grant) error {
	all := make([][]rule.Grant, len(w.names))
	all[name] = want
	return w.handed(all)
}

// handed is grants for hand-overs of each name.
func (w *world) handed(want [][]rule.Grant) error {
	if err := w.client.Do(w.ctx, w.client.B().Publish().Channel(w.prefix+"s:").Message("end").Build()).Error(); err != nil {
		return err
	}
	for {
		var m rueidis.PubSubMessage
		select {
		case m = <-w.pushed:
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
		if m.Message == "end" {
			break
		}
		id, text, _ := strings.Cut(m.Message, " ")
		token, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("pushed %q", m.Message)
		}
		if token <= 1 {
			continue // a hint, or a latch's
		}
		name := slices.IndexFunc(want, func(g []rule.Grant) bool {
			return len(g) > 0 && g[0].ID == id && w.prefix+"s:"+g[0].Session == m.Channel
		})
		if name < 0 {
			return fmt.Errorf("pushed %q on %s; want %+v", m.Message, m.Channel, want)
		}
		if err := w.minted(name, want[name][0].Token, token); err != nil {
			return err
		}
		want[name] = want[name][1:]
	}
	if left := slices.Concat(want...); len(left) > 0 {
		return fmt.Errorf("not pushed: %+v", left)
	}
	return nil
}

// minted notes that the server's token stands for the rule's.
func (w *world) minted(name int, ours, theirs uint64) error {
	if known, ok := w.tokens[name][ours]; ok {
		if known != theirs {
			return fmt.Errorf("token %d; want %d again", theirs, known)
		}
		return nil
	}
	if theirs <= w.tops[name] {
		return fmt.Errorf("token %d after %d", theirs, w.tops[name])
	}
	w.tokens[name][ours], w.tops[name] = theirs, theirs
	return nil
}

// kindOf reduces an error to the sentinel it wraps.
func kindOf(err error) error {
	for _, s := range []error{driver.ErrGone, driver.ErrTaken, driver.ErrKind, driver.ErrInvalid} {
		if errors.Is(err, s) {
			return s
		}
	}
	return err
}

func (w *world) inspect() error {
	for i, e := range w.entries {
		got, err := w.b.Inspect(w.ctx, w.names[i])
		if err != nil {
			return err
		}
		grants := e.Advance(w.now)
		if err := w.grants(i, grants); err != nil {
			return fmt.Errorf("Inspect: %w", err)
		}
		want := e.Record(w.now, w.names[i])
		want.Token = w.tokens[i][want.Token]
		for j := range want.Holders {
			want.Holders[j].Token = w.tokens[i][want.Holders[j].Token]
		}
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%s is\n%+v; want\n%+v", w.names[i], got, want)
		}
	}
	return nil
}
