// Frozen: a seller is stopped between its read and its write, for longer than its lease lasts. Another one
// gets the lock, and sells the last item. Then the first one continues, and writes what it had in mind.
//
// No lock can prevent that: a process that does not run does not learn that its lease is over. The database
// can, by the fencing token. fence.Begin starts each transaction with the token of the seller's lease, and
// refuses a token that is smaller than one it has seen. -without-token leaves only that out.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/example"
	"github.com/holdfast-lock/holdfast/fence"
)

var withoutToken = flag.Bool("without-token", false, "lock, but leave the fencing token out, to see the damage")

func main() { example.Main(map[string]example.Part{"": shop, "seller": frozen}) }

func shop(ctx context.Context, x *example.Run) error {
	err := x.Prepare(ctx, fence.Schema(x.Dialect), `DROP TABLE IF EXISTS example_last`,
		`CREATE TABLE example_last (item INTEGER PRIMARY KEY, n INTEGER NOT NULL)`,
		`INSERT INTO example_last VALUES (7, 1)`)
	if err != nil {
		return err
	}
	seller, err := x.Start("seller")
	if err != nil {
		return err
	}
	defer seller.Kill()
	if _, err := seller.Line(ctx); err != nil {
		return err
	}
	fmt.Println("seller 1 sees 1 item; its process is stopped")
	if err := x.Freeze(ctx, seller); err != nil {
		return err
	}

	c, err := holdfast.New(ctx, x.Store, nil)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	err = x.Do(ctx, c.Mutex("example/stock/7"), func(ctx context.Context) error { // waits for the end of the lease
		n, err := look(ctx, x, holdfast.Token(ctx))
		if err != nil {
			return err
		}
		fmt.Printf("seller 2 sees %d item, and sells it\n", n)
		return sell(ctx, x, holdfast.Token(ctx), n)
	})
	if err != nil {
		return err
	}

	fmt.Println("seller 1 continues, and sells what it has seen")
	if err := seller.Continue(); err != nil {
		return err
	}
	if err := seller.Say("go on"); err != nil {
		return err
	}
	said, err := seller.Line(ctx)
	if err != nil {
		return err
	}
	fmt.Println("seller 1:", said)
	if said == "sold" {
		return example.Damage("the last item is sold twice")
	}
	return nil
}

// look reads the stock, and sell writes it: each in a transaction under the token.
func look(ctx context.Context, x *example.Run, token uint64) (n int, err error) {
	err = guarded(ctx, x, token, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT n FROM example_last WHERE item = 7`).Scan(&n)
	})
	return n, err
}

func sell(ctx context.Context, x *example.Run, token uint64, n int) error {
	return guarded(ctx, x, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE example_last SET n = ? WHERE item = 7`, n-1)
		return err
	})
}

func guarded(ctx context.Context, x *example.Run, token uint64, work func(*sql.Tx) error) error {
	tx, err := x.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if !x.WithoutLock && !*withoutToken {
		if err := fence.Begin(ctx, tx, x.Dialect, "example/stock/7", token); err != nil {
			return err
		}
	}
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// frozen is seller 1. It is a process.
func frozen(ctx context.Context, x *example.Run) error {
	c, err := holdfast.New(ctx, x.Store, &holdfast.Config{TTL: example.TTL}) // default: 15 seconds
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	sale := errors.New("no sale yet")
	err = x.Do(ctx, c.Mutex("example/stock/7"), func(leased context.Context) error {
		token := holdfast.Token(leased)
		n, err := look(leased, x, token)
		if err != nil {
			return err
		}
		fmt.Println("looked")
		// From here on this uses ctx, which does not end with the lease. It is the worst case: a process
		// that is stopped after its last look at leased, and right before its write.
		if _, err := x.Await(ctx); err != nil {
			return err
		}
		sale = sell(ctx, x, token, n)
		return sale
	})
	switch {
	case errors.Is(sale, fence.ErrStale):
		fmt.Println("refused:", fence.ErrStale)
	case err == nil || sale == nil && errors.Is(err, holdfast.ErrLost): // Do reports the loss: too late
		fmt.Println("sold")
	default:
		return err
	}
	return nil
}
