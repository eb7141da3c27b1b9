package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast"
)

func ExampleRWMutex() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	prices := c.RWMutex("prices")
	lease, _ := prices.Lock(ctx) // for writing
	fmt.Println("prices are updated")
	_ = lease.Downgrade() // others may read now; nobody may write
	fmt.Println("what was written is checked")
	other, err := prices.TryRLock(ctx)
	fmt.Println("another reader:", err)
	other.Release()
	lease.Release()
	// Output:
	// prices are updated
	// what was written is checked
	// another reader: <nil>
}

func ExampleSemaphore() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	// On all machines together, three conversions at a time.
	gpu := c.Semaphore("gpu", 3)
	big, _ := gpu.Acquire(ctx, 2)
	defer big.Release()
	_, err := gpu.TryAcquire(ctx, 2)
	fmt.Println("two more:", errors.Is(err, holdfast.ErrHeld))
	err = gpu.Do(ctx, 1, func(ctx context.Context) error {
		fmt.Println("one more")
		return nil
	})
	fmt.Println(err)
	// Output:
	// two more: true
	// one more
	// <nil>
}

func ExampleLatch() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	done := c.Latch("import/2026-05")
	_, _ = done.Set(ctx, 2) // every participant may
	for _, part := range []string{"customers", "orders", "orders"} {
		left, _ := done.CountDown(ctx, part) // a part that runs twice counts once
		fmt.Println(part, left)
	}
	fmt.Println(done.Wait(ctx))
	// Output:
	// customers 1
	// orders 0
	// orders 0
	// <nil>
}

func ExampleLockAll() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	transfer := func(from, to string) error {
		return holdfast.DoAll(ctx, func(ctx context.Context) error {
			fmt.Println(from, "to", to, holdfast.TokenOf(ctx, "account/"+from) > 0, holdfast.TokenOf(ctx, "account/"+to) > 0)
			return nil
		}, c.Mutex("account/"+from), c.Mutex("account/"+to), c.RWMutex("rates").Reader())
	}
	fmt.Println(transfer("ann", "bob"), transfer("bob", "ann"))
	// Output:
	// ann to bob true true
	// bob to ann true true
	// <nil> <nil>
}

func ExampleElection() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	e := c.Election("scheduler", holdfast.Candidate("node-1", "10.0.0.1:7000"))
	for range 2 { // campaign again when the leadership was lost, or resigned
		err := e.Lead(ctx, func(ctx context.Context) error { // ctx ends with the leadership
			l, err := e.Leader(ctx)
			if err == nil {
				fmt.Println(l.Name, "leads at", l.Address, l.Term == holdfast.Token(ctx))
			}
			return err
		})
		if err != nil && !errors.Is(err, holdfast.ErrLost) {
			fmt.Println(err)
		}
	}
	// Output:
	// node-1 leads at 10.0.0.1:7000 true
	// node-1 leads at 10.0.0.1:7000 true
}

func ExampleClient_OnlyOne() {
	ctx := context.Background()
	a, _ := holdfast.New(ctx, store, nil)
	defer a.Close(ctx)
	b, _ := holdfast.New(ctx, store, nil)
	defer b.Close(ctx)

	for _, replica := range []*holdfast.Client{a, b} { // each by its own schedule
		ran, err := replica.OnlyOne(ctx, "invoices", 24*time.Hour, func(ctx context.Context) error {
			fmt.Println("writing invoices")
			return nil
		})
		fmt.Println(ran, err)
	}
	// Output:
	// writing invoices
	// true <nil>
	// false <nil>
}

func ExampleLease_HandOff() {
	ctx := context.Background()
	web, _ := holdfast.New(ctx, store, nil)
	defer web.Close(ctx)
	worker, _ := holdfast.New(ctx, store, nil)
	defer worker.Close(ctx)

	lease, _ := web.Mutex("video/12").Lock(ctx)
	ticket, adopted, _ := lease.HandOff() // goes to the worker with the job

	taken, err := worker.Adopt(ctx, ticket)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the same token:", taken.Token() == lease.Token())
	<-adopted // web may end now
	taken.Release()
	// Output: the same token: true
}
