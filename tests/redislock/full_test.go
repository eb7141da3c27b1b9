package redislock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// fill makes a server's memory full: every command that may need some is refused.
func fill(t testing.TB, r *testenv.RedisServer) {
	t.Helper()
	for _, c := range []string{"CONFIG SET maxmemory-policy noeviction", "CONFIG SET maxmemory 1"} {
		if got := r.Do(c); !strings.HasPrefix(got, "+OK") {
			t.Fatal(got)
		}
	}
	// another server of a Cluster, or a replica, has another reason
	if got := r.Do("SET hf:x y"); !strings.HasPrefix(got, "-") {
		t.Fatalf("SET: %s; want OOM", got)
	}
}

// TestFullMemory: while memory is full, leases are renewed, released and handed over. Nothing new
// is granted.
func TestFullMemory(t *testing.T) {
	t.Parallel()
	for what, start := range map[string]func(t *testing.T) ([]*testenv.RedisServer, func() *redislock.Backend){
		"server": func(t *testing.T) ([]*testenv.RedisServer, func() *redislock.Backend) {
			r := testenv.RedisACL(t, []string{aclRule})
			return []*testenv.RedisServer{r}, func() *redislock.Backend {
				return redislock.New(dialRueidis(t, "holdfast:secret@"+r.Addr), nil)
			}
		},
		"replicas": func(t *testing.T) ([]*testenv.RedisServer, func() *redislock.Backend) {
			s := testenv.RedisReplicas(t, 1)
			s.InSync(s.Replicas[0], s.Primary)
			return []*testenv.RedisServer{s.Primary, s.Replicas[0]}, func() *redislock.Backend {
				return redislock.New(dialRueidis(t, s.Primary.Addr),
					&redislock.Config{WaitReplicas: 1, WaitTimeout: 15 * time.Second})
			}
		},
		"Cluster": func(t *testing.T) ([]*testenv.RedisServer, func() *redislock.Backend) {
			c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Users: []string{clusterRule}})
			return c.Servers, func() *redislock.Backend {
				return redislock.New(clusterRueidis(t, c, testenv.Proxies(t, nil)), nil)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			servers, open := start(t)
			table := open()
			a, b := openSession(t, table, long), openSession(t, open(), long)
			ctx := within(t, 2*time.Minute)
			until(t, "the replicas confirm", func() bool {
				_, err := a.Acquire(ctx, exclusive(newID()))
				return err == nil
			})
			var holds []driver.Hold
			for i := range 10 { // "x0" has a waiter, the others have none
				holds = append(holds, granted(t, a, exclusive(fmt.Sprint("x", i))))
			}
			waits := exclusive("x0")
			reply := acquire(t, b, waits)
			reader := &driver.Request{ID: newID(), Name: "s", Mode: driver.Shared, N: 1}
			holds = append(holds, granted(t, a, reader))
			writer := exclusive("s")
			written := acquire(t, b, writer)
			permit := &driver.Request{ID: newID(), Name: "p", Mode: driver.Permits, N: 2, Limit: 3}
			holds = append(holds, granted(t, a, permit))
			places := []driver.Hold{{Name: "x0", ID: waits.ID}, {Name: "s", ID: writer.ID}}
			for _, r := range servers {
				fill(t, r)
			}
			// end checks when a lease ends: not later if late, not sooner otherwise.
			end := func(late bool) time.Time {
				now := time.Now()
				rec, err := table.Inspect(ctx, "x1")
				if err != nil || len(rec.Holders) != 1 {
					t.Fatalf("Inspect: %+v, %v", rec, err)
				}
				if late {
					now = time.Now()
				}
				return now.Add(rec.Holders[0].Left)
			}
			first := end(true)
			until(t, "a renewal has put off the end of a lease", func() bool {
				changes, err := a.Renew(ctx, holds)
				if err != nil || len(changes) != 0 {
					t.Fatalf("Renew: %+v, %v", changes, err)
				}
				return end(false).After(first)
			})
			for range 3 {
				if changes, err := b.Renew(ctx, places); err != nil || len(changes) != 2 || changes[0].State != driver.Waiting ||
					changes[1].State != driver.Waiting {
					t.Fatalf("Renew of places: %+v, %v", changes, err)
				}
				if _, err := b.Acquire(ctx, exclusive(newID())); !errors.Is(err, driver.ErrRefused) {
					t.Fatalf("Acquire: %v; want ErrRefused", err)
				}
				if _, err := b.Acquire(ctx, exclusive("x1")); !errors.Is(err, driver.ErrRefused) {
					t.Fatalf("Acquire of what is held: %v; want ErrRefused", err)
				}
			}
			cancelled := holds[9]
			holds = append(holds[:9], holds[10:]...)
			if err := a.Cancel(ctx, cancelled.Name, cancelled.ID); err != nil {
				t.Errorf("Cancel: %v", err)
			}
			for _, h := range holds {
				if err := a.Release(ctx, h, 0); err != nil {
					t.Errorf("Release of %q: %v", h.Name, err)
				}
			}
			for _, w := range []struct {
				r     *driver.Request
				reply driver.Reply
			}{{waits, reply}, {writer, written}} {
				token := woken(t, w.reply)
				if err := b.Release(ctx, driver.Hold{Name: w.r.Name, ID: w.r.ID, Token: token}, 0); err != nil {
					t.Errorf("Release of %q by the next: %v", w.r.Name, err)
				}
			}
		})
	}
}
