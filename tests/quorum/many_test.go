package quorum_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// spied keeps the sessions that are opened, to describe them.
type spied struct {
	driver.Backend
	mu       *sync.Mutex
	sessions *[]driver.Session
}

func (b spied) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	if err == nil {
		b.mu.Lock()
		*b.sessions = append(*b.sessions, s)
		b.mu.Unlock()
	}
	return s, err
}

// TestManyAtOnce: many clients contend at the same moment for a name that was never used. They get
// it one after the other without a standstill, although they split the servers at first.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	g := start(t, 5, 2*time.Minute)
	const clients = 24
	rounds := testenv.Rounds(3, 10)
	var mu sync.Mutex
	var sessions []driver.Session
	var all []*holdfast.Client
	for range clients {
		c := connect(t, spied{g.backend(g.addrs()), &mu, &sessions}, &holdfast.Config{TTL: 2 * time.Minute})
		all = append(all, c)
	}
	for round := range rounds {
		var inside atomic.Int64
		var group sync.WaitGroup
		begin := make(chan struct{})
		name := fmt.Sprint("many-", round)
		var done atomic.Int64
		described := make(chan struct{})
		watch := time.AfterFunc(35*time.Second, func() { // a third of the TTL is 40 s: it must not take renewals
			defer close(described)
			t.Errorf("round %d stands still after %d", round, done.Load())
			mu.Lock()
			defer mu.Unlock()
			for _, s := range sessions {
				t.Log(hook.QuorumDescribe(s))
			}
		})
		for _, c := range all {
			group.Go(func() {
				<-begin
				for range 3 {
					ok := do(t, c.Mutex(name).Do, func(context.Context) error {
						if n := inside.Add(1); n != 1 {
							t.Errorf("%d inside", n)
						}
						inside.Add(-1)
						return nil
					})
					if !ok {
						return
					}
					done.Add(1)
				}
			})
		}
		start := time.Now()
		close(begin)
		group.Wait()
		if !watch.Stop() {
			<-described
		}
		t.Logf("round %d: %v", round, time.Since(start))
		if t.Failed() {
			return
		}
	}
}
