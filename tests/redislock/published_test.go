package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// listener records all messages published at one server.
type listener struct {
	mu        sync.Mutex
	published []string
	marks     chan string
}

func listen(t testing.TB, addr string) *listener {
	t.Helper()
	client := rawClient(t, addr)
	e := &listener{marks: make(chan string, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	ready, over := make(chan struct{}), make(chan struct{})
	confirmed := sync.OnceFunc(func() { close(ready) }) // a new connection is confirmed, too
	go func() {
		defer close(over)
		ctx := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { confirmed() })
		_ = client.Receive(ctx, client.B().Psubscribe().Pattern("*").Build(), func(m rueidis.PubSubMessage) {
			if strings.HasPrefix(m.Channel, "mark:") {
				e.marks <- m.Message
				return
			}
			e.mu.Lock()
			e.published = append(e.published, m.Message)
			e.mu.Unlock()
		})
	}()
	t.Cleanup(func() { cancel(); <-over })
	<-ready
	return e
}

// settled returns the messages recorded since the last call, once all earlier messages have
// arrived.
func (e *listener) settled(t testing.TB, primary *testenv.RedisServer, mark string) []string {
	t.Helper()
	primary.Do("PUBLISH mark: " + mark)
	for {
		select {
		case m := <-e.marks:
			if m != mark {
				continue
			}
		case <-time.After(long):
			t.Fatal("a listener receives nothing")
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		published := e.published
		e.published = nil
		return published
	}
}

// elsewhere is a Conn that subscribes at another server than it asks.
type elsewhere struct {
	redislock.Conn
	subscribeAt redislock.Conn
}

func (c *elsewhere) Subscribe(ctx context.Context, channel string, message func(string), again func()) (func(), error) {
	return c.subscribeAt.Subscribe(ctx, channel, message, again)
}

// TestPassedOverGetsNothing: some waiters are subscribed at a replica or not at all. Every
// published grant is on record for the request that it names. The listener is at the replica: it
// receives all messages of the primary and is not counted.
func TestPassedOverGetsNothing(t *testing.T) {
	t.Parallel()
	set := testenv.RedisReplicas(t, 1)
	primary, replica := set.Primary, set.Replicas[0]
	listener := listen(t, replica.Addr)
	here := redislock.New(dialRueidis(t, primary.Addr), nil)
	away := dialRueidis(t, replica.Addr)
	defer func() { _ = away.Close() }()
	sessions := []driver.Session{
		openSession(t, here, long),
		openSession(t, redislock.New(&elsewhere{dialRueidis(t, primary.Addr), away}, nil), long),
		openSession(t, redislock.New(&sided{Conn: dialRueidis(t, primary.Addr), mute: true}, nil), long),
		openSession(t, redislock.New(dialGoRedis(t, primary.Addr), nil), long),
	}
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	type asked struct {
		s driver.Session
		r driver.Request
	}
	ctx := within(t, 2*time.Minute)
	all := map[string][]asked{}
	grants := 0
	for i := range 600 {
		mode := driver.Exclusive + driver.Mode(rng.IntN(3))
		name := fmt.Sprint(mode/driver.Permits, rng.IntN(2)) // permits apart from the others
		rec, err := here.Inspect(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if j := rng.IntN(10); len(rec.Holders) > 0 && j < 4 {
			for _, a := range all[name] {
				if h := rec.Holders[0]; h.ID == a.r.ID {
					err = a.s.Release(ctx, driver.Hold{Name: name, ID: h.ID, Token: h.Token}, 0)
				}
			}
		} else if len(all[name]) > 0 && j < 6 {
			k := rng.IntN(len(all[name]))
			err = all[name][k].s.Cancel(ctx, name, all[name][k].r.ID)
			all[name] = slices.Delete(all[name], k, k+1)
		} else {
			a := asked{sessions[rng.IntN(len(sessions))], driver.Request{ID: newID(), Name: name, Mode: mode, N: 1, Wait: true}}
			if mode == driver.Permits {
				a.r.N, a.r.Limit = 1+rng.IntN(2), 3
			}
			all[name] = append(all[name], a)
			_, err = a.s.Acquire(ctx, &a.r)
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec, err = here.Inspect(ctx, name); err != nil {
			t.Fatal(err)
		}
		for _, message := range listener.settled(t, primary, fmt.Sprint(i)) {
			id, text, _ := strings.Cut(message, " ")
			token, _ := strconv.ParseUint(text, 10, 64)
			if token == 0 {
				continue
			}
			grants++
			if !slices.ContainsFunc(rec.Holders, func(h driver.Holder) bool { return h.ID == id && h.Token == token }) {
				t.Fatalf("step %d: published %q, which is not on record: %+v", i, message, rec)
			}
		}
	}
	if grants < 20 {
		t.Errorf("only %d grants were published", grants)
	}
}

// TestPatternListener: a client is subscribed to all channels, and the first waiter is gone. The
// hand-over happens at once.
func TestPatternListener(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	listen(t, server.Addr)
	a, _ := session(t, server.URL(), long)
	c, _ := session(t, server.URL(), long)
	dead := openSession(t, redislock.New(&sided{Conn: dialRueidis(t, server.Addr), mute: true}, nil), long)
	h := granted(t, a, exclusive("x"))
	acquire(t, dead, exclusive("x"))
	reply := acquire(t, c, exclusive("x"))
	if err := a.Release(within(t, soon), h, 0); err != nil {
		t.Fatal(err)
	}
	if token := woken(t, reply); token <= h.Token {
		t.Errorf("token %d after %d", token, h.Token)
	}
}

// TestRefusingWrites: a server answers and refuses to write. No hand-over is published. When it
// writes again, the first waiter gets the lock.
func TestRefusingWrites(t *testing.T) {
	t.Parallel()
	for what, f := range map[string]struct{ refuse, heal string }{
		"a replica":        {"REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"},
		"too few replicas": {"CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"},
		"nothing is saved": {"", ""},
	} {
		for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
			t.Run(fmt.Sprint(what, ", ", mode), func(t *testing.T) {
				server := testenv.Redis(t, protectedConfig...)
				a, _ := session(t, server.URL(), long)
				b, back := session(t, server.URL(), long)
				listener := listen(t, server.Addr)
				h := granted(t, a, exclusive("x"))
				r := &driver.Request{ID: newID(), Name: "x", Mode: mode, N: 1, Wait: true}
				reply := acquire(t, b, r)
				heal := func() { server.Do(f.heal) }
				if f.refuse == "" {
					heal = cannotSave(t, server)
				} else if got := server.Do(f.refuse); !strings.HasPrefix(got, "+OK") {
					t.Fatal(got)
				}
				for range 2 {
					if err := a.Release(within(t, soon), h, 0); !errors.Is(err, driver.ErrUnavailable) &&
						!errors.Is(err, driver.ErrRefused) {
						t.Errorf("Release: %v; want ErrUnavailable or ErrRefused", err)
					}
				}
				if published := listener.settled(t, server, "1"); len(published) > 0 {
					t.Errorf("published %q while nothing could be written", published)
				}
				heal()
				until(t, "it is released", func() bool { // the client may have to reconnect
					err := a.Release(within(t, soon), h, 0)
					if err != nil && !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrRefused) &&
						!errors.Is(err, driver.ErrUncertain) && !driver.IsOver(err) {
						t.Fatalf("Release: %v", err)
					}
					return err == nil || driver.IsOver(err)
				})
				rec, err := back.Inspect(within(t, soon), "x")
				// A client leaves a replica and connects again. A waiter that does not listen is passed over.
				away := what == "a replica" && err == nil && len(rec.Holders) == 0
				if !away && (err != nil || len(rec.Holders) != 1 || rec.Holders[0].ID != r.ID) {
					t.Fatalf("Inspect: %+v, %v", rec, err)
				}
				token := gets(t, b, r, reply)
				rec, err = back.Inspect(within(t, soon), "x")
				if err != nil || len(rec.Holders) != 1 || rec.Holders[0].ID != r.ID || rec.Holders[0].Token != token {
					t.Errorf("received %d; on record is %+v (%v)", token, rec, err)
				}
			})
		}
	}
}

// TestQueueDeleted: one or both keys of a queue vanish while a mutex is held. No grant is published
// that is not on record. Waiters whose places are gone learn that and queue again.
func TestQueueDeleted(t *testing.T) {
	t.Parallel()
	for what, letters := range map[string]string{"its order": "z", "its records": "m", "both": "zm"} {
		t.Run(what, func(t *testing.T) {
			server := testenv.Redis(t)
			listener := listen(t, server.Addr)
			client := rawClient(t, server.Addr)
			b := newEdited(rueidisconn.New(client), nil, func(_, text string) string { return stepper + text })
			var sessions []driver.Session
			for range 4 {
				sessions = append(sessions, openSession(t, b, time.Minute))
			}
			ctx := within(t, soon)
			granted(t, sessions[0], exclusive("x"))
			r := []*driver.Request{nil, exclusive("x"), exclusive("x"), exclusive("x")}
			acquire(t, sessions[1], r[1])
			for _, l := range letters {
				server.Do(fmt.Sprintf("DEL hf:{%02x}:%c:x", hook.RedisShard("x"), l))
			}
			acquire(t, sessions[2], r[2])
			acquire(t, sessions[3], r[3])
			server.Do("SET step:ahead 50")
			for i, s := range sessions[1:] {
				if _, err := s.Renew(ctx, []driver.Hold{{Name: "x", ID: r[i+1].ID}}); err != nil {
					t.Fatalf("Renew: %v", err)
				}
			}
			server.Do("SET step:ahead 70") // the holder's lease is over
			for round := range 3 {
				i := round%3 + 1
				changes, err := sessions[i].Renew(ctx, []driver.Hold{{Name: "x", ID: r[i].ID}})
				if err != nil {
					t.Fatalf("Renew: %v", err)
				}
				for _, c := range changes {
					rec, err := b.Inspect(ctx, "x")
					if err != nil || c.State == driver.Granted &&
						(len(rec.Holders) != 1 || rec.Holders[0].Token != c.Token || rec.Holders[0].ID != r[i].ID) {
						t.Fatalf("%+v; on record: %+v, %v", c, rec, err)
					}
				}
			}
			rec, err := b.Inspect(ctx, "x")
			if err != nil || len(rec.Holders) != 1 {
				t.Fatalf("Inspect: %+v, %v", rec, err)
			}
			want := fmt.Sprint(rec.Holders[0].ID, " ", rec.Holders[0].Token)
			if published := listener.settled(t, server, "1"); len(published) > 1 || len(published) == 1 && published[0] != want {
				t.Errorf("published %q; on record: %+v", published, rec)
			}
		})
	}
}
