package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/redislock"
)

// load are clients that take a lock in turns.
type load struct {
	strict bool // nothing happens that could make the store forget a grant
	inside atomic.Int64
	rounds []atomic.Int64 // of each client
	last   atomic.Uint64
	tokens sync.Map // those that were granted
	cancel context.CancelFunc
	all    sync.WaitGroup
	failed chan error
}

// contend makes a client of each backend, with two goroutines each that contend for name.
func contend(t testing.TB, backends []*redislock.Backend, name string, strict bool) *load {
	t.Helper()
	l := &load{strict: strict, rounds: make([]atomic.Int64, len(backends)), failed: make(chan error, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	for i, b := range backends {
		client, err := holdfast.New(within(t, 10*time.Second), b, &holdfast.Config{TTL: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close(within(t, 10*time.Second)) })
		for range 2 {
			l.all.Go(func() {
				for ctx.Err() == nil {
					err := l.round(ctx, client.Mutex(name), &l.rounds[i])
					away := errors.Is(err, holdfast.ErrUncertain) || errors.Is(err, holdfast.ErrUnavailable)
					if err != nil && ctx.Err() == nil && (l.strict || !away) {
						l.failed <- err
						return
					}
				}
			})
		}
	}
	return l
}

func (l *load) round(ctx context.Context, m *holdfast.Mutex, rounds *atomic.Int64) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	n, last := l.inside.Add(1), l.last.Swap(lease.Token())
	lost := lease.Err() != nil
	l.inside.Add(-1)
	switch {
	case !l.strict:
		if _, twice := l.tokens.LoadOrStore(lease.Token(), true); twice {
			return fmt.Errorf("token %d was granted twice", lease.Token())
		}
	case lost: // it had to be given up: then others may be in
	case n != 1:
		return fmt.Errorf("%d inside", n)
	case last >= lease.Token():
		return fmt.Errorf("token %d after %d", lease.Token(), last)
	}
	rounds.Add(1)
	if err := lease.Release(); err != nil && !errors.Is(err, holdfast.ErrLost) {
		return err
	}
	return nil
}

// goesOn waits until each client has had the lock n times more.
func (l *load) goesOn(t testing.TB, n int64) {
	t.Helper()
	want := make([]int64, len(l.rounds))
	for i := range want {
		want[i] = l.rounds[i].Load() + n
	}
	end := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := range want {
		for l.rounds[i].Load() < want[i] {
			select {
			case err := <-l.failed:
				t.Fatal(err)
			case <-tick.C:
			}
			if time.Now().After(end) {
				t.Fatalf("client %d does not get on", i)
			}
		}
	}
}

func (l *load) stop(t testing.TB) {
	t.Helper()
	l.cancel()
	l.all.Wait()
	select {
	case err := <-l.failed:
		t.Fatal(err)
	default:
	}
}
