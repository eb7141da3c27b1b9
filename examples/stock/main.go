// Stock: 50 buyers want the last 10 items of a shop with two servers.
//
// A sale reads the stock, asks the payment service, and writes the new stock. Between the read and the
// write somebody else may have bought, so a lock keeps the others out meanwhile.
//
// If a sale is one statement, it needs no lock: UPDATE stock SET n = n - 1 WHERE item = 42 AND n > 0.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/example"
)

const (
	items  = 10
	buyers = 50
)

func main() { example.Main(map[string]example.Part{"": rush}) }

func rush(ctx context.Context, x *example.Run) error {
	err := x.Prepare(ctx, `DROP TABLE IF EXISTS example_stock`,
		`CREATE TABLE example_stock (item INTEGER PRIMARY KEY, n INTEGER NOT NULL)`,
		fmt.Sprintf(`INSERT INTO example_stock VALUES (42, %d)`, items))
	if err != nil {
		return err
	}
	fmt.Printf("%d buyers want one of %d items\n", buyers, items)

	var servers [2]*holdfast.Client // like two processes: one program needs only one client
	for i := range servers {
		if servers[i], err = holdfast.New(ctx, x.Store, nil); err != nil {
			return err
		}
		defer servers[i].Close(ctx)
	}
	payments := x.Crowd(buyers)
	results := make(chan error, buyers)
	for i := range buyers {
		stock := servers[i%2].Mutex("example/stock/42") // one lock for each item: others can be sold meanwhile
		go func() { results <- buy(ctx, x, stock, payments.Wait) }()
	}
	sold := 0
	for range buyers {
		switch err := <-results; {
		case err == nil:
			sold++
		case !errors.Is(err, errSoldOut):
			return err
		}
	}
	left, err := x.Number(ctx, `SELECT n FROM example_stock WHERE item = 42`)
	if err != nil {
		return err
	}
	fmt.Printf("%d have paid, %d were told that it is sold out\n", sold, buyers-sold)
	fmt.Printf("the database says that %d are left\n", left)
	if sold > items {
		return example.Damage("%d items are sold that the shop does not have", sold-items)
	}
	return nil
}

var errSoldOut = errors.New("sold out")

// buy sells one item.
func buy(ctx context.Context, x *example.Run, stock *holdfast.Mutex, pay func()) error {
	return x.Do(ctx, stock, func(ctx context.Context) error { // this ctx ends when the lock is lost
		n, err := x.Number(ctx, `SELECT n FROM example_stock WHERE item = 42`)
		switch {
		case err != nil:
			return err
		case n == 0:
			return errSoldOut
		}
		pay()
		return x.Exec(ctx, `UPDATE example_stock SET n = ? WHERE item = 42`, n-1)
	})
}
