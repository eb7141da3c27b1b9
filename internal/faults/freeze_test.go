package faults

import (
	"context"
	"testing"
	"time"
)

// TestFrozen: a store answers nobody for longer than a lease lasts, and goes on as if nothing had been. Its
// holder knows that its lease is over before the store can wake up and give it away.
func TestFrozen(t *testing.T) {
	t.Parallel()
	// frozen freezes so many of the servers.
	frozen := func(n int) func(*site) func() {
		return func(s *site) func() {
			for _, m := range s.servers[:n] {
				m.Pause()
			}
			return func() {
				for _, m := range s.servers[:n] {
					m.Continue()
				}
			}
		}
	}
	for what, test := range map[string]struct {
		start func(t *testing.T) *site
		harm  func(*site) (heal func())
	}{
		"Redis":                {func(t *testing.T) *site { return redisSite(t) }, frozen(1)},
		"quorum, majority":     {quorumSite, frozen(3)},
		"ZooKeeper":            {func(t *testing.T) *site { return zooKeeperSite(t) }, frozen(1)},
		"ZooKeeper, majority":  {func(t *testing.T) *site { return ensembleSite(t) }, frozen(2)},
		"MariaDB":              {func(t *testing.T) *site { return mariaDBSite(t) }, frozen(1)},
		"PostgreSQL":           {func(t *testing.T) *site { return postgresSite(t) }, frozen(1)},
		"SQLite, file is busy": {func(t *testing.T) *site { return sqliteSite(t, t.TempDir()) }, nil},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := test.start(t)
			if test.harm == nil {
				test.harm = busy
			}
			c := s.scene()
			third := s.client()
			heal := test.harm(s)
			before := len(c.next) // on a busy machine the lease may have run out before
			since := time.Now()
			c.fails(third, "another")
			t.Logf("told after %v of a TTL of %v", c.told().Sub(since), c.holder.TTL())
			// By the clock, whenever the test came to look: nothing was proven since.
			if c.held.Err() == nil {
				t.Error("the lease is still trusted")
			}
			time.Sleep(time.Until(since.Add(lasting))) // all leases run out at the store
			if len(c.next) > before {
				t.Error("a frozen store has granted something")
			}
			heal()
			since = time.Now()
			c.release(c.served())
			t.Logf("served %v after the end", time.Since(since))
			l, took := c.again(third, "another")
			t.Logf("the third client was served %v later", took)
			c.release(l)
			c.release(s.lock(c.holder, name)) // it may hold again
		})
	}
}

// busy keeps the file of an SQLite store for writing, as another program might.
func busy(s *site) (heal func()) {
	s.t.Helper()
	db := pool(s.t, "sqlite", s.path)
	conn, err := db.Conn(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	begin := func(text string) {
		s.t.Helper()
		if _, err := conn.ExecContext(context.Background(), text); err != nil {
			s.t.Fatal(err)
		}
	}
	begin("PRAGMA busy_timeout = 5000")
	begin("BEGIN IMMEDIATE")
	return func() {
		begin("ROLLBACK")
		_ = conn.Close()
	}
}
