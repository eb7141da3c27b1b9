// Gift: 100 clients try to redeem one gift code, and retry. The first one's process dies in the middle.
//
// To redeem a code is to look for a payment, to pay, and to record that the code is used. The lock lets one
// client at a time do this. The first process dies after the payment and before the record. The next holder
// finds the payment, and only records it.
//
// If the payments are a table of yours, give them a unique key on the code: it refuses the second payment
// without a lock. Here they stand for a service that knows neither unique nor idempotency keys.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/example"
)

const clients = 100

func main() { example.Main(map[string]example.Part{"": rush, "first": first}) }

func rush(ctx context.Context, x *example.Run) error {
	err := x.Prepare(ctx, `DROP TABLE IF EXISTS example_payment`, `DROP TABLE IF EXISTS example_gift`,
		`CREATE TABLE example_payment (code VARCHAR(20) NOT NULL)`,
		`CREATE TABLE example_gift (code VARCHAR(20) PRIMARY KEY, used INTEGER NOT NULL)`,
		`INSERT INTO example_gift VALUES ('XMAS-7', 0)`)
	if err != nil {
		return err
	}
	one, err := x.Start("first")
	if err != nil {
		return err
	}
	defer one.Kill()
	if _, err := one.Line(ctx); err != nil {
		return err
	}
	fmt.Println("client 1 looks for a payment, and finds none")

	fmt.Printf("%d other clients try meanwhile\n", clients-1)
	server, err := holdfast.New(ctx, x.Store, nil)
	if err != nil {
		return err
	}
	defer server.Close(ctx)
	crowd := x.Crowd(clients)
	var retries atomic.Int64
	results := make(chan error, clients)
	for range clients - 1 {
		go func() {
			wait := 250 * time.Millisecond
			err := redeem(ctx, x, server, wait, crowd.Wait, nothing)
			for again(err) {
				retries.Add(1)
				wait *= 2 // or a slow store would have no time for anything but retries
				err = redeem(ctx, x, server, wait, crowd.Wait, nothing)
			}
			results <- err
		}()
	}
	crowd.Wait() // in the place of client 1
	if err := one.Say("pay"); err != nil {
		return err
	}
	if _, err := one.Line(ctx); err != nil {
		return err
	}
	fmt.Println("client 1 pays, and its process dies before it can record that")

	used := 0
	for range clients - 1 {
		if err := <-results; errors.Is(err, errUsed) {
			used++
		} else if err != nil {
			return err
		}
	}
	fmt.Printf("the others are told that the code is used: %d, after %d retries\n", used, retries.Load())
	paid, err := x.Number(ctx, `SELECT COUNT(*) FROM example_payment`)
	if err != nil {
		return err
	}
	fmt.Printf("payments for the code: %d\n", paid)
	if paid > 1 {
		return example.Damage("the gift is paid out %d times", paid)
	}
	return nil
}

// first is client 1. It is a process.
func first(ctx context.Context, x *example.Run) error {
	server, err := holdfast.New(ctx, x.Store, &holdfast.Config{TTL: example.TTL}) // default: 15 seconds
	if err != nil {
		return err
	}
	return redeem(ctx, x, server, time.Minute, func() { fmt.Println("looked"); _, _ = x.Await(ctx) },
		func() { fmt.Println("paid"); example.Crash() })
}

var errUsed = errors.New("the code is used")

// redeem pays the gift out unless that is done. It calls looked before the payment, and paid after it.
func redeem(ctx context.Context, x *example.Run, server *holdfast.Client, wait time.Duration,
	looked, paid func()) error {
	gift := server.Mutex("example/gift/XMAS-7", holdfast.WaitAtMost(wait))
	return x.Do(ctx, gift, func(ctx context.Context) error {
		used, err := x.Number(ctx, `SELECT used FROM example_gift WHERE code = 'XMAS-7'`)
		if err != nil || used > 0 {
			return cmp.Or(err, errUsed)
		}
		payments, err := x.Number(ctx, `SELECT COUNT(*) FROM example_payment WHERE code = 'XMAS-7'`)
		if err != nil {
			return err
		}
		if payments == 0 {
			looked()
			if err := x.Exec(ctx, `INSERT INTO example_payment VALUES ('XMAS-7')`); err != nil {
				return err
			}
			paid()
		} else {
			err = errUsed // by a client that has died before its record
		}
		return cmp.Or(x.Exec(ctx, `UPDATE example_gift SET used = 1 WHERE code = 'XMAS-7'`), err)
	})
}

// again reports whether the client has not got the lock, and may try again.
func again(err error) bool {
	return errors.Is(err, holdfast.ErrHeld) || errors.Is(err, holdfast.ErrUnavailable) ||
		errors.Is(err, holdfast.ErrUncertain)
}

func nothing() {}
