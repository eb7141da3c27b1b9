package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// store replaces the store of a real program: redislock, sqllock.
var store = memlock.New()

func Example() {
	ctx := context.Background()
	c, err := holdfast.New(ctx, store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close(ctx)

	err = c.Mutex("order/42").Do(ctx, func(ctx context.Context) error {
		fmt.Println("nobody else charges order 42 now")
		return nil
	})
	fmt.Println(err)
	// Output:
	// nobody else charges order 42 now
	// <nil>
}

func ExampleMutex_Lock() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	// The deadline bounds the wait, not the lease.
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	lease, err := c.Mutex("stock/7").Lock(wait)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release()
	work := lease.Context(ctx) // ends with the lease
	fmt.Println(lease.Name(), work.Err(), holdfast.Token(work) == lease.Token())
	// Output: stock/7 <nil> true
}

func ExampleLease_Valid() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	// The resource refuses a token below the highest that it has seen.
	highest := uint64(0)
	send := func(token uint64, what string) error {
		if token < highest {
			return errors.New("overtaken")
		}
		highest = token
		fmt.Println("sent", what)
		return nil
	}

	lease, err := c.Mutex("outbox").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release()
	for _, what := range []string{"letter 1", "letter 2"} {
		if !lease.Valid(2 * time.Second) { // the longest time that a send takes
			fmt.Println("the rest is for the next holder:", lease.Err())
			return
		}
		if err := send(lease.Token(), what); err != nil { // paused after Valid
			fmt.Println(err)
			return
		}
	}
	// Output:
	// sent letter 1
	// sent letter 2
}

func ExampleMutex_TryLock() {
	ctx := context.Background()
	a, _ := holdfast.New(ctx, store, &holdfast.Config{Program: "nightly"})
	defer a.Close(ctx)
	b, _ := holdfast.New(ctx, store, nil)
	defer b.Close(ctx)

	lease, _ := a.Mutex("report", holdfast.Note("the long one")).Lock(ctx)
	defer lease.Release()

	_, err := b.Mutex("report").TryLock(ctx)
	var e *holdfast.Error
	if errors.Is(err, holdfast.ErrHeld) && errors.As(err, &e) {
		fmt.Println("busy:", e.Holder.Program, e.Holder.Note)
	}
	// Output: busy: nightly the long one
}

func ExampleReentrant() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	m := c.Mutex("account/9", holdfast.Reentrant())
	err := m.Do(ctx, func(ctx context.Context) error {
		// A function that takes the lock itself may be called by one that already holds it.
		return m.Do(ctx, func(ctx context.Context) error {
			fmt.Println("the same lease, borrowed")
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// the same lease, borrowed
	// <nil>
}

func ExampleMinHold() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	// This runs at most once a minute, on any number of machines.
	job := c.Mutex("cleanup", holdfast.MinHold(time.Minute))
	for range 2 {
		lease, err := job.TryLock(ctx)
		if errors.Is(err, holdfast.ErrHeld) {
			fmt.Println("already done in this minute")
			continue
		}
		fmt.Println("cleaning")
		lease.Release()
	}
	// Output:
	// cleaning
	// already done in this minute
}

func ExampleMutex_Locker() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	l := c.Mutex("legacy").Locker(ctx, func(err error) { fmt.Println("trouble:", err) })
	l.Lock()
	fmt.Println("locked")
	l.Unlock()
	// Output: locked
}

func ExampleClient_Inspect() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, &holdfast.Config{Program: "deploy.sh"})
	defer c.Close(ctx)
	lease, _ := c.Mutex("deploy/prod").Lock(ctx)
	defer lease.Release()

	r, _ := c.Inspect(ctx, "deploy/prod")
	for _, h := range r.Holders {
		fmt.Println(r.Kind, h.Program, h.Token == lease.Token())
	}
	fmt.Println(r.Waiting, "waiting")
	// Output:
	// lock deploy.sh true
	// 0 waiting
}
