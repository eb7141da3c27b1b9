package rueidisconn_test

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// The locks have a prefix of their own in the server of the application. A token of Redis is the
// server's time in microseconds, so tokens grow even if the server loses its data.
func Example() {
	ctx := context.Background()
	conn, err := rueidisconn.Dial(redisURL()) // "redis://user:password@localhost:6379"
	if err != nil {
		fmt.Println(err)
		return
	}
	store := redislock.New(conn, &redislock.Config{Prefix: "shop:locks:"})
	defer store.Close() // and conn
	client, err := holdfast.New(ctx, store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)

	lease, err := client.Mutex("stock/42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	granted := time.UnixMicro(int64(lease.Token()))
	fmt.Println("granted within this hour:", time.Since(granted).Abs() < time.Hour)
	fmt.Println("released:", lease.Release())
	// Output:
	// granted within this hour: true
	// released: <nil>
}

// A quorum grants locks while a majority of its servers is up: here one of three fails.
func Example_quorum() {
	ctx := context.Background()
	var servers []quorum.Server
	for _, addr := range threeServers() { // "r1:6379", "r2:6379", "r3:6379"
		servers = append(servers, quorum.Server{Name: addr, Dial: func(ctx context.Context) (redislock.Conn, error) {
			return rueidisconn.DialContext(ctx, "redis://"+addr, nil)
		}})
	}
	store := quorum.New(servers, nil)
	defer store.Close()
	// Once, when the servers are new; or "holdfast init". Without it they begin after a minute.
	if err := store.Declare(ctx); err != nil {
		fmt.Println(err)
		return
	}
	client, err := holdfast.New(ctx, store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)

	first, err := client.Mutex("stock/42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("locked at three servers, released:", first.Release())

	failOne()
	second, err := client.Mutex("stock/42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("locked at two, with a larger token:", second.Token() > first.Token())
	fmt.Println("released:", second.Release())
	// Output:
	// locked at three servers, released: <nil>
	// locked at two, with a larger token: true
	// released: <nil>
}
