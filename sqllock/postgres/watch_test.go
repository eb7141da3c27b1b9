package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// A look of a watcher that took long delays the next one by two seconds at most.
func testWatcherAfterASlowLook(t *testing.T, server *testenv.PostgresServer) {
	const slow, soon = 800 * time.Millisecond, 20 * time.Second // 50 times slow is 40 s
	dsn := named(t, server) + "&search_path=slow_look"
	db := pool(t, dsn)
	run(t, db, "CREATE SCHEMA slow_look")
	initialise(t, dsn)
	p := join(t, dsn, time.Minute)
	h := p.take(p.mutex("x"))
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan string, 10)
	ended := make(chan error, 1)
	go func() { ended <- p.b.Watch(ctx, "", func(name string) { changed <- name }) }()
	defer func() { cancel(); <-ended }()
	<-changed // it has looked once
	tx, err := db.BeginTx(limited(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec("LOCK TABLE hf_lock IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	stuck(t, db, 1)
	<-time.After(slow)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	until(t, "the look is over", func() bool {
		return value[int](t, db, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = $1",
			t.Name()) == 0
	})
	p.free(h)
	select {
	case name := <-changed:
		if name != "x" || time.Since(began) > soon {
			t.Errorf("%q after %v; want x within %v", name, time.Since(began), soon)
		}
	case err := <-ended:
		ended <- err
		t.Errorf("Watch: %v", err)
	case <-time.After(patience):
		t.Error("a release is not reported")
	}
}
