package postgres_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// When the server's queue of notifications is full, releases and hand-overs still work: waiters
// without a notification find out at the next renewal.
func testFullQueue(t *testing.T, server *testenv.PostgresServer) {
	admin := pool(t, server.DSN("postgres"))
	run(t, admin, "CREATE SCHEMA full_queue")
	dsn := named(t, server) + "&search_path=full_queue,pg_catalog"
	initialise(t, dsn)
	a, b := joinByServer(t, dsn, time.Minute), joinByServer(t, dsn, time.Minute)
	held, readers := a.take(a.mutex("x")), a.take(a.mutex("y"))
	r, shared := b.mutex("x"), b.shared("y")
	b.queue(r)
	b.queue(shared)
	run(t, admin, `CREATE FUNCTION full_queue.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION USING ERRCODE = '54000', MESSAGE = 'too many notifications in the NOTIFY queue'; END $$`)
	a.free(held)
	a.free(readers)
	for _, r := range []*driver.Request{r, shared} {
		ch, err := b.renew(driver.Hold{Name: r.Name, ID: r.ID})
		if err != nil || ch.State != driver.Granted || ch.Token == 0 {
			t.Fatalf("Renew of a granted place: %+v, %v", ch, err)
		}
		b.free(driver.Hold{Name: r.Name, ID: r.ID, Token: ch.Token})
	}
}
