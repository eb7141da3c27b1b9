// Points: a customer with 100 loyalty points orders a voucher for 80 from the phone and the laptop at once.
//
// Each device talks to another server of the shop. An order reads the points, has the voucher printed, and
// writes what is left. A lock on the customer makes the second order see what the first has left.
//
// If an order is one statement, it needs no lock: UPDATE … SET points = points - 80 WHERE points >= 80.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/example"
)

const (
	points = 100
	price  = 80
)

func main() { example.Main(map[string]example.Part{"": shop}) }

func shop(ctx context.Context, x *example.Run) error {
	err := x.Prepare(ctx, `DROP TABLE IF EXISTS example_points`,
		`CREATE TABLE example_points (customer INTEGER PRIMARY KEY, points INTEGER NOT NULL)`,
		fmt.Sprintf(`INSERT INTO example_points VALUES (7, %d)`, points))
	if err != nil {
		return err
	}
	fmt.Printf("customer 7 has %d points, and orders a voucher for %d from two devices\n", points, price)

	type result struct {
		device string
		err    error
	}
	results := make(chan result, 2)
	printer := x.Crowd(2)
	for _, device := range []string{"phone", "laptop"} {
		server, err := holdfast.New(ctx, x.Store, nil) // each on a machine of its own
		if err != nil {
			return err
		}
		defer server.Close(ctx)
		go func() { results <- result{device, order(ctx, x, server, 7, printer.Wait)} }()
	}
	vouchers := 0
	var none []result // printed last: both may end at the same moment
	for range 2 {
		if r := <-results; r.err != nil {
			none = append(none, r)
		} else {
			vouchers++
			fmt.Printf("the %s gets a voucher\n", r.device)
		}
	}
	for _, r := range none {
		switch {
		case errors.Is(r.err, errTooFew):
			fmt.Printf("the %s gets none: %v\n", r.device, r.err)
		default:
			return r.err
		}
	}
	left, err := x.Number(ctx, `SELECT points FROM example_points WHERE customer = 7`)
	if err != nil {
		return err
	}
	fmt.Printf("%d points are left\n", left)
	if spent := vouchers * price; spent+left != points {
		return example.Damage("%d points are spent, and %d are left, of %d", spent, left, points)
	}
	return nil
}

var errTooFew = errors.New("too few points")

// order spends a customer's points on a voucher.
func order(ctx context.Context, x *example.Run, server *holdfast.Client, customer int, print func()) error {
	// People do not wait for long: after 10 seconds the error names the holder.
	account := server.Mutex(fmt.Sprint("example/customer/", customer), holdfast.WaitAtMost(10*time.Second))
	return x.Do(ctx, account, func(ctx context.Context) error {
		has, err := x.Number(ctx, `SELECT points FROM example_points WHERE customer = ?`, customer)
		switch {
		case err != nil:
			return err
		case has < price:
			return fmt.Errorf("%w: %d", errTooFew, has)
		}
		print()
		return x.Exec(ctx, `UPDATE example_points SET points = ? WHERE customer = ?`, has-price, customer)
	})
}
