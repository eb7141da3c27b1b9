package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/zklock"
)

// The lock "orders/42" is the path /shop/orders/42: programs with Curator's InterProcessMutex on that path
// wait in the same queue. A client is one session, and trusts a lease for three fifths of its timeout.
func Example() {
	ctx := context.Background()
	store, err := zklock.New(zklock.Config{
		Servers: zooKeepers(), // []string{"zk1", "zk2", "zk3"}
		Root:    "/shop",
		Session: 30 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	client, err := holdfast.New(ctx, store, &holdfast.Config{Program: "billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)
	other, err := holdfast.New(ctx, store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer other.Close(ctx)

	lease, err := client.Mutex("orders/42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the token is a transaction of ZooKeeper:", lease.Token() > 0)
	fmt.Println("the lease is trusted for", client.TTL())
	var held *holdfast.Error
	if _, err := other.Mutex("orders/42").TryLock(ctx); errors.Is(err, holdfast.ErrHeld) && errors.As(err, &held) {
		fmt.Println("the holder is", held.Holder.Program)
	}
	fmt.Println("released:", lease.Release())
	// Output:
	// the token is a transaction of ZooKeeper: true
	// the lease is trusted for 18s
	// the holder is billing
	// released: <nil>
}
