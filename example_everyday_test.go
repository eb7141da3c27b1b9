package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast"
)

func ExampleMaxHold() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	// The store ends the lease after ten seconds, whatever becomes of this process.
	lease, _ := c.Mutex("report", holdfast.MaxHold(10*time.Second)).Lock(ctx)
	defer lease.Release()
	fmt.Println(lease.Left() <= 10*time.Second)
	fmt.Println(lease.Extend(time.Minute), lease.Left() > 10*time.Second)
	// Output:
	// true
	// <nil> true
}

func ExampleSemaphore_Drain() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	seats := c.Semaphore("seats", 5)
	two, _ := seats.Acquire(ctx, 2)
	defer two.Release()
	rest, n, err := seats.Drain(ctx) // it does not wait
	fmt.Println(n, err)
	defer rest.Release()
	_, _, err = seats.Drain(ctx)
	fmt.Println("nothing is left:", errors.Is(err, holdfast.ErrHeld))
	// Output:
	// 3 <nil>
	// nothing is left: true
}

func ExampleLease_ReleasePermits() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	workers := c.Semaphore("workers", 4)
	lease, _ := workers.Acquire(ctx, 4)
	defer lease.Release()
	token := lease.Token()
	fmt.Println(lease.ReleasePermits(3), lease.Permits(), lease.Token() == token)
	other, err := workers.TryAcquire(ctx, 3)
	fmt.Println("three for another:", err)
	defer other.Release()
	// Output:
	// <nil> 1 true
	// three for another: <nil>
}

func ExampleClient_SetLimit() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	_ = c.SetLimit(ctx, "exports", 2) // an operator, or "holdfast sem limit exports 2"
	exports := c.Semaphore("exports", holdfast.LimitAsSet)
	lease, _ := exports.Acquire(ctx, 2)
	_, err := exports.TryAcquire(ctx, 1)
	fmt.Println("a third:", errors.Is(err, holdfast.ErrHeld))
	lease.Release()
	fmt.Println(c.SetLimit(ctx, "exports", 0)) // removed
	// Output:
	// a third: true
	// <nil>
}

func ExampleElection_Stand() {
	ctx := context.Background()
	c, _ := holdfast.New(ctx, store, nil)
	defer c.Close(ctx)

	candidacy, err := c.Election("api").Stand(ctx) // it campaigns in the background
	if err != nil {
		fmt.Println(err)
		return
	}
	for !candidacy.IsLeader() { // a server would answer "not here"
		time.Sleep(time.Millisecond)
	}
	if l := candidacy.Lease(); l != nil {
		fmt.Println("this process leads, in a term with a token:", l.Token() > 0)
	}
	fmt.Println(candidacy.Stop())
	// Output:
	// this process leads, in a term with a token: true
	// <nil>
}

func ExampleLease_Ticket() {
	ctx := context.Background()
	before, _ := holdfast.New(ctx, store, nil)
	defer before.Close(ctx)

	lease, _ := before.Mutex("order/7").Lock(ctx)
	ticket, _ := lease.Ticket() // stored with the work, as a secret

	// Another request, or this program after a crash:
	after, _ := holdfast.New(ctx, store, nil)
	defer after.Close(ctx)
	again, err := after.Resume(ctx, ticket)
	fmt.Println(err, again.Token() == lease.Token())
	again.Release()
	_, err = after.Resume(ctx, ticket)
	fmt.Println(errors.Is(err, holdfast.ErrGone))
	// Output:
	// <nil> true
	// true
}
