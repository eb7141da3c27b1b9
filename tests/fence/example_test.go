package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/fence/fencehttp"
	"github.com/holdfast-lock/holdfast/sqllock/sqlite"
	_ "modernc.org/sqlite"
)

// guarded runs work in a transaction under the token, again if another transaction was in the way.
// The context of a lease ends the repeats with the lease.
func guarded(ctx context.Context, db *sql.DB, resource string, token uint64, work func(*sql.Tx) error) error {
	for {
		err := once(ctx, db, resource, token, work)
		if !fence.Retryable(fence.SQLite, err) {
			return err
		}
	}
}

func once(ctx context.Context, db *sql.DB, resource string, token uint64, work func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := fence.Begin(ctx, tx, fence.SQLite, resource, token); err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func sell(ctx context.Context, client *redis.Client, token uint64) error {
	stock := &fence.Redis{
		Eval: func(ctx context.Context, script string, keys, args []string) (any, error) {
			return client.Eval(ctx, script, keys, args).Result()
		},
		Key:  "stock:{42}:fence", // the largest token
		Keys: []string{"stock:{42}:count"},
	}
	left, err := stock.Do(ctx, token, []string{"GET", "stock:{42}:count"}) // raises the token
	if err != nil {
		return err
	}
	if left[0] == nil || left[0] == "0" { // no such item, or none left
		return errors.New("sold out")
	}
	_, err = stock.Do(ctx, token, []string{"DECR", "stock:{42}:count"})
	return err // errors.Is(err, fence.ErrStale): a newer holder has been here
}

func orders(db *sql.DB) http.Handler {
	guard := &fencehttp.TxGuard{DB: db, Dialect: fence.PostgreSQL, Resource: func(r *http.Request) (string, error) {
		return "order/" + r.PathValue("id"), nil
	}}
	mux := http.NewServeMux()
	mux.Handle("POST /order/{id}", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := fencehttp.Tx(r.Context()).Exec(`UPDATE orders SET paid = true WHERE id = $1`, r.PathValue("id"))
		if err != nil {
			http.Error(w, "failed", http.StatusInternalServerError) // rolls back
		}
	})))
	return mux
}

func pay(m *holdfast.Mutex, url string) error {
	client := &http.Client{Transport: &fencehttp.Transport{}}
	return m.Do(context.Background(), func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil) // ctx has the token
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK { // 412: a newer holder has been here
			return errors.New(answer.Status)
		}
		return nil
	})
}

var _, _, _ = sell, orders, pay

// Two sellers, one item in stock. The first is paused after it has read, for so long that the
// second gets the lock and sells the item. The database then refuses the first one's write.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	// The shop's database, with the table of tokens next to its own.
	db, _ := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	defer db.Close()
	for _, statement := range []string{
		fence.Schema(fence.SQLite),
		`CREATE TABLE stock (item INTEGER PRIMARY KEY, n INTEGER NOT NULL)`,
		`INSERT INTO stock VALUES (42, 1)`,
	} {
		if _, err := db.Exec(statement); err != nil {
			fmt.Println(err)
			return
		}
	}
	look := func(token uint64) (n int, err error) {
		err = guarded(ctx, db, "stock/42", token, func(tx *sql.Tx) error {
			return tx.QueryRow(`SELECT n FROM stock WHERE item = 42`).Scan(&n)
		})
		return n, err
	}
	set := func(token uint64, n int) error {
		return guarded(ctx, db, "stock/42", token, func(tx *sql.Tx) error {
			_, err := tx.Exec(`UPDATE stock SET n = ? WHERE item = 42`, n)
			return err
		})
	}

	// The locks may be anywhere; here they are in a separate file.
	locks, err := sqlite.Open(filepath.Join(dir, "locks.db"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	c, err := holdfast.New(ctx, locks, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close(ctx)
	stock := c.Mutex("stock/42")

	first, _ := stock.Lock(ctx)
	n, err := look(first.Token())
	fmt.Println("the first sees", n, err)

	// The first is paused. Somebody breaks its lock, or its lease expires.
	_ = c.Break(ctx, "stock/42", first.Token(), "")

	second, _ := stock.Lock(ctx)
	m, err := look(second.Token())
	fmt.Println("the second sees", m, err)
	fmt.Println("the second sells:", set(second.Token(), m-1))
	_ = second.Release()

	// The first continues with what it read.
	err = set(first.Token(), n-1)
	fmt.Println("the first is refused:", errors.Is(err, fence.ErrStale))
	// Output:
	// the first sees 1 <nil>
	// the second sees 1 <nil>
	// the second sells: <nil>
	// the first is refused: true
}
