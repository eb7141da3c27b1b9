package open_test

import (
	"context"
	"fmt"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/open"
)

// A program takes its store from its configuration, such as the environment variable that the
// command line reads.
func Example() {
	ctx := context.Background()
	url := "memory:" // os.Getenv(open.Variable)

	store, err := open.Open(ctx, url)
	if err != nil {
		fmt.Println(err) // has no password
		return
	}
	defer store.Close()
	c, err := holdfast.New(ctx, store, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close(ctx)

	lease, err := c.Mutex("report/daily").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release()
	fmt.Println("the lock is ours, at a store named", store.Name())
	// Output: the lock is ours, at a store named memory
}
