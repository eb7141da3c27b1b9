package redislock_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// cannotSave makes a server unable to write its data to the disk, so that it refuses all writes,
// and PING. The server must have been started with protectedConfig.
func cannotSave(t *testing.T, r *testenv.RedisServer) (heal func()) {
	t.Helper()
	move := func(dir string) {
		t.Helper()
		if reply := r.Do("CONFIG SET dir " + dir); !strings.HasPrefix(reply, "+OK") {
			t.Fatalf("CONFIG SET dir: %s", reply)
		}
	}
	gone, good := t.TempDir(), t.TempDir()
	move(gone)
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	r.Do(`CONFIG SET save "3600 1"`)
	until(t, "PING is refused", func() bool {
		r.Do("BGSAVE")
		return strings.HasPrefix(r.Do("PING"), "-MISCONF")
	})
	return func() {
		move(good)
		r.Do(`CONFIG SET save ""`)
		// The server writes into good until it has saved, and the end of the test removes that folder.
		until(t, "the server has saved its data", func() bool {
			info := r.Info("persistence")
			if info["rdb_bgsave_in_progress"] != "0" {
				return false
			}
			if info["rdb_last_bgsave_status"] != "ok" {
				r.Do("BGSAVE")
				return false
			}
			return true
		})
		if reply := r.Do("PING"); !strings.HasPrefix(reply, "+PONG") {
			t.Fatalf("PING: %s", reply)
		}
	}
}

var protectedConfig = []string{"--enable-protected-configs", "yes"}

// TestCannotSave: all requests to a server that cannot save its data are refused with that reason.
// Clients may come and go meanwhile, and everything works afterwards.
func TestCannotSave(t *testing.T) {
	t.Parallel()
	for what, start := range map[string]func(t *testing.T) (*testenv.RedisServer, []*redislock.Backend){
		"rueidis": func(t *testing.T) (*testenv.RedisServer, []*redislock.Backend) {
			r := testenv.Redis(t, protectedConfig...)
			return r, []*redislock.Backend{redislock.New(dialRueidis(t, r.Addr), nil),
				redislock.New(dialRueidis(t, r.Addr), nil)}
		},
		"go-redis": func(t *testing.T) (*testenv.RedisServer, []*redislock.Backend) {
			r := testenv.Redis(t, protectedConfig...)
			return r, []*redislock.Backend{redislock.New(dialGoRedis(t, r.Addr), nil),
				redislock.New(dialGoRedis(t, r.Addr), nil)}
		},
		"rueidis, replicas": func(t *testing.T) (*testenv.RedisServer, []*redislock.Backend) {
			s := testenv.RedisReplicas(t, 1, protectedConfig...)
			cfg := &redislock.Config{WaitReplicas: 1}
			return s.Primary, []*redislock.Backend{redislock.New(dialRueidis(t, s.Primary.Addr), cfg),
				redislock.New(dialRueidis(t, s.Primary.Addr), cfg)}
		},
		"rueidis, Cluster": func(t *testing.T) (*testenv.RedisServer, []*redislock.Backend) {
			c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, Args: protectedConfig})
			dial := func() *redislock.Backend { return redislock.New(dialURL(t, c.URL("")), nil) }
			return c.Servers[c.Owner(tagOf("x"), 0)], []*redislock.Backend{dial(), dial()}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r, backends := start(t)
			a, b := openSession(t, backends[0], long), openSession(t, backends[1], long)
			brief := openSession(t, backends[1], long)
			ask := func(s driver.Session, r *driver.Request) (reply driver.Reply) {
				t.Helper()
				until(t, "it is answered", func() (ok bool) { // a replica may be late to confirm it
					var err error
					reply, err = s.Acquire(within(t, soon), r)
					return err == nil
				})
				return reply
			}
			first, waits, gone := exclusive("x"), exclusive("x"), exclusive("x")
			h := driver.Hold{Name: "x", ID: first.ID, Token: ask(a, first).Token}
			if h.Token == 0 {
				t.Fatal("not granted")
			}
			reply := ask(b, waits)
			ask(brief, gone)
			heal := cannotSave(t, r)
			for range 3 {
				if _, err := a.Acquire(within(t, soon), exclusive("y")); err != nil && !errors.Is(err, driver.ErrRefused) {
					t.Errorf("Acquire: %v; want ErrRefused", err)
				}
				if _, err := a.Acquire(within(t, soon), exclusive("x")); !errors.Is(err, driver.ErrRefused) {
					t.Errorf("Acquire: %v; want ErrRefused", err)
				}
				if _, err := a.Renew(within(t, soon), []driver.Hold{h}); !errors.Is(err, driver.ErrRefused) {
					t.Errorf("Renew: %v; want ErrRefused", err)
				}
			}
			// It ends its subscriptions.
			if err := brief.Close(within(t, soon)); err != nil && !errors.Is(err, driver.ErrRefused) {
				t.Errorf("Close: %v; want ErrRefused", err)
			}
			if _, err := backends[1].Inspect(within(t, soon), "x"); err != nil && !errors.Is(err, driver.ErrRefused) {
				t.Errorf("Inspect: %v; want ErrRefused", err)
			}
			heal()
			until(t, "the lock is released", func() bool {
				err := a.Release(within(t, soon), h, 0)
				return err == nil || errors.Is(err, driver.ErrGone)
			})
			if token := gets(t, b, waits, reply); token <= h.Token {
				t.Errorf("token %d after %d", token, h.Token)
			}
		})
	}
}
