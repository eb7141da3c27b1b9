package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // or another driver; Config.Driver names it

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/sqllock/sqlite"
)

// The processes of a machine share a file, and need no server. The file outlives them: a program that a
// schedule starts too often finds that the job of this hour is done.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "locks.db") // "/var/lib/shop/locks.db"

	program := func() error {
		ctx := context.Background()
		store, err := sqlite.Open(file, nil)
		if err != nil {
			return err
		}
		defer store.Close()
		client, err := holdfast.New(ctx, store, nil)
		if err != nil {
			return err
		}
		defer client.Close(ctx)

		lease, err := client.Mutex("stock/42").Lock(ctx)
		if err != nil {
			return err
		}
		fmt.Println("holds", lease.Name(), "with a token:", lease.Token() > 0)
		if err := lease.Release(); err != nil {
			return err
		}
		ran, err := client.OnlyOne(ctx, "report", time.Hour, func(context.Context) error { return nil })
		fmt.Println("made the report:", ran)
		return err
	}
	fmt.Println(program())
	fmt.Println(program()) // starts again
	// Output:
	// holds stock/42 with a token: true
	// made the report: true
	// <nil>
	// holds stock/42 with a token: true
	// made the report: false
	// <nil>
}
