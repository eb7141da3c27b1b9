package quorum_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// fault is a fault of a server, and its repair.
type fault struct {
	name string
	do   func(s *testenv.RedisServer, way *testenv.TCPProxy) (undo func())
}

var faults = []fault{
	{"dead", func(s *testenv.RedisServer, _ *testenv.TCPProxy) func() { s.Kill(); return s.Start }},
	{"frozen", func(s *testenv.RedisServer, _ *testenv.TCPProxy) func() { s.Pause(); return s.Continue }},
	{"restarted empty", func(s *testenv.RedisServer, _ *testenv.TCPProxy) func() { s.Restart(false); return func() {} }},
	{"cut off", func(_ *testenv.RedisServer, way *testenv.TCPProxy) func() { way.Hole(); return way.Heal }},
	{"not answering", func(_ *testenv.RedisServer, way *testenv.TCPProxy) func() { way.DropReplies(); return way.Heal }},
	{"refusing", func(_ *testenv.RedisServer, way *testenv.TCPProxy) func() { way.Refuse(); return way.Heal }},
}

// tally is a resource that checks its users: never two at a time, and tokens grow.
type tally struct {
	t      *testing.T
	inside atomic.Int64
	mu     sync.Mutex
	last   uint64
	n      int
}

// use is the critical section. The caller must hold the lock as long as ctx lasts.
func (y *tally) use(ctx context.Context) error {
	if n := y.inside.Add(1); n != 1 {
		y.t.Errorf("%d inside", n)
	}
	y.mu.Lock()
	if token := holdfast.Token(ctx); token <= y.last {
		y.t.Errorf("token %d after %d", token, y.last)
	} else {
		y.last = token
	}
	y.n++
	y.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
	y.inside.Add(-1)
	return nil
}

func (y *tally) count() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.n
}

const faultTTL = 15 * time.Second

// TestMinority: whatever happens to a minority of the servers, contenders go on getting a lock, one
// at a time, with growing tokens; and no holder loses it.
func TestMinority(t *testing.T) {
	t.Parallel()
	for i, f := range faults {
		for _, size := range []int{3, 5} {
			if !testenv.Deep() && (i%2 == 0) != (size == 3) { // one of both sizes for each fault
				continue
			}
			t.Run(fmt.Sprintf("%d of %d %s", size/2, size, f.name), func(t *testing.T) {
				t.Parallel()
				minority(t, size, f)
			})
		}
	}
}

func minority(t *testing.T, size int, f fault) {
	const pause = 15 * time.Millisecond // between two rounds of a client, to leave the processor to the servers
	g := start(t, size, faultTTL+time.Second)
	ways := g.proxies()
	y := &tally{t: t}
	long, end := context.WithTimeout(context.Background(), 5*time.Minute)
	defer end()
	ctx, stop := context.WithCancel(long)
	defer stop()
	var group sync.WaitGroup
	var mu sync.Mutex
	var sessions []driver.Session
	var renewed atomic.Int64 // how often the held lock was renewed
	client := func(o *holdfast.Observer) *holdfast.Client {
		return connect(t, spied{g.backend(ways.addrs()), &mu, &sessions}, &holdfast.Config{TTL: faultTTL, Observer: o})
	}
	keeper := client(&holdfast.Observer{Renewed: func(n int, _ time.Duration, err error) {
		if n > 0 && err == nil {
			renewed.Add(1)
		}
	}})
	kept, err := keeper.Mutex("kept").Lock(ctx) // it must outlast everything
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		c := client(nil)
		group.Go(func() {
			for ctx.Err() == nil {
				err := c.Mutex("busy").Do(ctx, y.use)
				if err != nil && ctx.Err() == nil && !passing(err) { // a release may have been lost
					t.Errorf("Do: %v", err)
					return
				}
				time.Sleep(pause)
			}
		})
	}
	progress := func(what string, n int) {
		t.Helper()
		for from, end := y.count(), time.Now().Add(time.Minute); y.count() < from+n; time.Sleep(2 * time.Millisecond) {
			if time.Now().After(end) {
				mu.Lock()
				defer mu.Unlock()
				for _, s := range sessions {
					t.Log(hook.QuorumDescribe(s))
				}
				t.Fatalf("%s: %d in a minute", what, y.count()-from)
			}
			if t.Failed() {
				return
			}
		}
	}
	progress("before", 20)
	var undo []func()
	for _, i := range rand.Perm(size)[:size/2] {
		undo = append(undo, f.do(g.servers[i], ways[i]))
	}
	progress("while it lasts", 50)
	for before, end := renewed.Load(), time.Now().Add(time.Minute); renewed.Load() == before; time.Sleep(
		10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not renewed in a minute without those servers: %v", kept.Err())
		}
	}
	progress("after a renewal", 20)
	slices.Reverse(undo)
	for _, u := range undo {
		u()
	}
	progress("when it is over", 50)
	stop()
	group.Wait()
	if err := kept.Err(); err != nil {
		t.Errorf("the lock that was kept: %v", err)
	}
	if err := kept.Release(); err != nil {
		t.Errorf("Release of the lock that was kept: %v", err)
	}
}
