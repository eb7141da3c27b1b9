package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// uncontended makes a session see count names as uncontended, so that it uses the fast path.
func uncontended(t testing.TB, s driver.Session, count int) (names []string) {
	t.Helper()
	for i := range count {
		names = append(names, fmt.Sprintf("uncontended-%d", i))
		for range 3 {
			if err := s.Release(within(t, soon), granted(t, s, exclusive(names[i])), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	return names
}

// Many goroutines share exchanges. A name with a damaged key does not harm the others.
func TestCombined(t *testing.T) {
	t.Parallel()
	const goroutines, rounds = 64, 50
	server := testenv.Redis(t)
	s, _ := session(t, server.URL(), long)
	names := uncontended(t, s, goroutines)
	// It counts as uncontended, and its key has changed.
	spoilt := names[0]
	h := granted(t, s, exclusive(spoilt))
	raw := rawClient(t, server.Addr)
	keys, err := raw.Do(t.Context(), raw.B().Keys().Pattern("*:l:"+spoilt).Build()).AsStrSlice()
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	server.Do("DEL " + keys[0])
	server.Do("RPUSH " + keys[0] + " x")
	server.Do("CONFIG RESETSTAT")
	var pairs, refused atomic.Int32
	var group sync.WaitGroup
	for n, name := range names {
		last := uint64(0)
		group.Go(func() {
			for range rounds {
				r := exclusive(name)
				r.Wait = false
				reply, err := s.Acquire(within(t, soon), r)
				if n == 0 {
					if !errors.Is(err, driver.ErrDamaged) {
						t.Errorf("Acquire of a key that is a list: %v; want ErrDamaged", err)
					}
					refused.Add(1)
					continue
				}
				if err != nil || reply.Token <= last {
					t.Errorf("%s: token %d after %d: %v", name, reply.Token, last, err)
					return
				}
				last = reply.Token
				if err := s.Release(within(t, soon), driver.Hold{Name: name, ID: r.ID, Token: reply.Token}, 0); err != nil {
					t.Error(err)
				}
				pairs.Add(1)
			}
		})
	}
	group.Wait()
	if refused.Load() != rounds || pairs.Load() != (goroutines-1)*rounds {
		t.Errorf("%d refused, %d pairs", refused.Load(), pairs.Load())
	}
	if err := s.Release(within(t, soon), h, 0); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("Release of a key that is a list: %v; want ErrDamaged", err)
	}
	stats, err := raw.Do(t.Context(), raw.B().Info().Section("commandstats").Build()).ToString()
	_, of, found := strings.Cut(stats, "cmdstat_evalsha:calls=")
	calls, cerr := strconv.Atoi(of[:max(0, strings.IndexByte(of, ','))])
	if asked := 2 * int(pairs.Load()); err != nil || cerr != nil || !found || calls >= asked {
		t.Errorf("%d exchanges for %d requests; want fewer (%v, %v)", calls, asked, err, cerr)
	}
}

// TestCombinedSameName: of two calls that take the same free name, perhaps in the same exchange, one
// gets it.
func TestCombinedSameName(t *testing.T) {
	t.Parallel()
	const count, rounds = 64, 20
	server := testenv.Redis(t)
	for range rounds {
		s, _ := session(t, server.URL(), long) // it counts no name as contended yet
		var group sync.WaitGroup
		start := make(chan struct{})
		for _, name := range uncontended(t, s, count) {
			var grants atomic.Int32
			for range 2 {
				group.Go(func() {
					r := exclusive(name)
					r.Wait = false
					<-start
					reply, err := s.Acquire(within(t, soon), r)
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					if reply.Token == 0 {
						return
					}
					if n := grants.Add(1); n > 1 {
						t.Errorf("%s has been granted %d times", name, n)
					}
				})
			}
		}
		close(start)
		group.Wait()
		if err := s.Close(within(t, soon)); err != nil {
			t.Error(err)
		}
		server.Do("FLUSHALL")
	}
}

// A user who may not run MGET has the permissions of an older version: shared exchanges then leave all
// names to the general scripts.
func TestCombinedWithoutMGET(t *testing.T) {
	t.Parallel()
	server := testenv.RedisACL(t, []string{strings.Replace(aclRule, "+mget ", "", 1)})
	s, _ := session(t, "redis://holdfast:secret@"+server.Addr, long)
	var group sync.WaitGroup
	for _, name := range uncontended(t, s, 64) {
		group.Go(func() {
			for range 20 {
				r := exclusive(name)
				reply, err := s.Acquire(within(t, soon), r)
				if err != nil || reply.Token == 0 {
					t.Errorf("Acquire: %+v, %v", reply, err)
					return
				}
				if err := s.Release(within(t, soon), driver.Hold{Name: name, ID: r.ID, Token: reply.Token}, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	raw := rawClient(t, server.Addr)
	entries, err := raw.Do(t.Context(), raw.B().Arbitrary("ACL", "LOG").Build()).ToAny()
	if err != nil || !strings.Contains(fmt.Sprint(entries), "mget") {
		t.Errorf("no exchange was shared: ACL LOG is %v, %v", entries, err)
	}
}

// A caller that gives up during a shared exchange leaves nothing behind.
func TestCombinedCancel(t *testing.T) {
	t.Parallel()
	const goroutines = 64
	server := testenv.Redis(t)
	s, _ := session(t, server.URL(), time.Minute)
	other, _ := session(t, server.URL(), time.Minute)
	names := uncontended(t, s, goroutines)
	for range 5 {
		server.Pause()
		var asked, group sync.WaitGroup
		asked.Add(len(names))
		for _, name := range names {
			group.Go(func() {
				r := exclusive(name)
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
				defer cancel()
				if reply, err := s.Acquire(ctx, r); err == nil {
					t.Errorf("Acquire while the server is stopped: %+v", reply)
				}
				asked.Done()
				for s.Cancel(within(t, 200*time.Millisecond), name, r.ID) != nil {
				}
			})
		}
		asked.Wait()
		server.Continue()
		group.Wait()
		for _, name := range names {
			until(t, name+" is free", func() bool {
				r := exclusive(name)
				r.Wait = false
				reply := acquire(t, other, r)
				if reply.Token == 0 {
					return false
				}
				return other.Release(within(t, soon), driver.Hold{Name: name, ID: r.ID, Token: reply.Token}, 0) == nil
			})
		}
	}
}

// TestCombinedGivenUp: callers give up at the moment when their shared exchange is answered. The
// session knows for each whether its request is under way, and can be closed.
func TestCombinedGivenUp(t *testing.T) {
	t.Parallel()
	const goroutines, rounds = 64, 30
	server := testenv.Redis(t)
	s, _ := session(t, server.URL(), long)
	names := uncontended(t, s, goroutines)
	var group sync.WaitGroup
	for n, name := range names {
		group.Go(func() {
			for i := range rounds {
				r := exclusive(name)
				ctx, cancel := context.WithCancel(t.Context())
				timer := time.AfterFunc(time.Duration((n*rounds+i*7)%40)*100*time.Microsecond, cancel)
				_, _ = s.Acquire(ctx, r)
				timer.Stop()
				cancel()
				if err := s.Cancel(within(t, soon), name, r.ID); err != nil {
					t.Errorf("Cancel: %v", err)
				}
			}
		})
	}
	group.Wait()
	if err := s.Close(within(t, soon)); err != nil {
		t.Errorf("Close: %v; want nil: no request is under way", err)
	}
}
