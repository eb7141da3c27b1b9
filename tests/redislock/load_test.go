package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/redislock"
)

// A promise is what clients must observe.
type promise int

const (
	tokensDiffer promise = iota // the store may be away, and forget grants
	oneAtATime                  // the store may be away, and forgets no grant
	alwaysThere                 // the store is never away, but may be slow
)

// load are clients that take a lock in turns.
type load struct {
	promise
	holder atomic.Pointer[holdfast.Lease]
	rounds []atomic.Int64 // of each client
	last   atomic.Uint64
	tokens sync.Map     // all tokens granted
	moves  atomic.Int64 // of the slot: counts each beginning and each end of a move
	slow   atomic.Int64 // calls that were given up, and not because the slot was moving
	cancel context.CancelFunc
	all    sync.WaitGroup
	failed chan error
}

// loadTTL is the TTL of the clients. A call that the store delays is given up after a third of it,
// or later.
const loadTTL = 5 * time.Second

// errSlow: a call was given up after its time. The slot was moving, or the machine was busy.
var errSlow = errors.New("no answer in time")

// patiently returns the error of call, or errSlow. The machine is an excuse for a few calls: for all six
// that are under way, twice.
func (l *load) patiently(call func() error) error {
	const few = 12
	moves, began := l.moves.Load(), time.Now()
	err := call()
	if !away(err) || time.Since(began) < loadTTL/3 {
		return err
	}
	if onItsWay := moves%2 == 1 || l.moves.Load() != moves; !onItsWay && l.slow.Add(1) > few {
		return err
	}
	return errSlow
}

func away(err error) bool {
	return errors.Is(err, holdfast.ErrUncertain) || errors.Is(err, holdfast.ErrUnavailable)
}

// contend makes a client of each backend, each with two goroutines that contend for name.
func contend(t testing.TB, backends []*redislock.Backend, name string, p promise) *load {
	t.Helper()
	l := &load{promise: p, rounds: make([]atomic.Int64, len(backends)), failed: make(chan error, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	const pause = 20 * time.Millisecond // between two rounds of a goroutine, to leave the processor to the servers
	for i, b := range backends {
		client, err := holdfast.New(within(t, soon), b, &holdfast.Config{TTL: loadTTL})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close(within(t, soon)) })
		for range 2 {
			l.all.Go(func() {
				for ctx.Err() == nil {
					err := l.round(ctx, client.Mutex(name), &l.rounds[i])
					if err != nil && ctx.Err() == nil && err != errSlow && (l.promise == alwaysThere || !away(err)) {
						l.failed <- err
						return
					}
					time.Sleep(pause)
				}
			})
		}
	}
	return l
}

func (l *load) round(ctx context.Context, m *holdfast.Mutex, rounds *atomic.Int64) error {
	var lease *holdfast.Lease
	err := l.patiently(func() (err error) {
		lease, err = m.Lock(ctx)
		return err
	})
	if err != nil {
		return err
	}
	other, last := l.holder.Swap(lease), l.last.Swap(lease.Token())
	defer l.holder.CompareAndSwap(lease, nil)
	if _, twice := l.tokens.LoadOrStore(lease.Token(), true); twice {
		return fmt.Errorf("token %d was granted twice", lease.Token())
	}
	if l.promise != tokensDiffer && lease.Err() == nil {
		if other != nil && other.Err() == nil {
			return fmt.Errorf("token %d was granted while the holder of %d could count on its lease", lease.Token(),
				other.Token())
		}
		if last >= lease.Token() {
			return fmt.Errorf("token %d after %d", lease.Token(), last)
		}
	}
	if rounds.Add(1)%8 == 0 && l.promise == oneAtATime { // let every fault hit a holder, too
		select {
		case <-time.After(200 * time.Millisecond):
		case <-lease.Done():
		}
	}
	l.holder.CompareAndSwap(lease, nil)
	if err := l.patiently(lease.Release); err != nil && !errors.Is(err, holdfast.ErrLost) {
		return err
	}
	return nil
}

// goesOn waits until each client has had the lock n more times.
func (l *load) goesOn(t testing.TB, n int64) {
	t.Helper()
	want := make([]int64, len(l.rounds))
	for i := range want {
		want[i] = l.rounds[i].Load() + n
	}
	end := time.Now().Add(time.Minute)
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
				t.Fatalf("client %d does not get on: rounds of each %v, wanted %v; goroutines:\n%s", i, l.counts(), want,
					goroutines())
			}
		}
	}
}

// counts returns how many rounds each client has had.
func (l *load) counts() []int64 {
	all := make([]int64, len(l.rounds))
	for i := range l.rounds {
		all[i] = l.rounds[i].Load()
	}
	return all
}

func goroutines() []byte {
	stacks := make([]byte, 1<<20)
	return stacks[:runtime.Stack(stacks, true)]
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
