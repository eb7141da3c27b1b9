package faults

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// stoppable is a store whose servers are frozen, and then killed.
type stoppable struct {
	start    func(t *testing.T) *site
	affected int // how many of the servers; 0: there are none, and its file is busy
	deep     bool
}

// TestStopped freezes and kills servers.
func TestStopped(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]stoppable{
		"Redis": {func(t *testing.T) *site {
			return redisSite(t, "--appendonly", "yes", "--appendfsync", "always")
		}, 1, false},
		"quorum, majority":     {quorumSite, 3, false},
		"ZooKeeper":            {func(t *testing.T) *site { return zooKeeperSite(t) }, 1, false},
		"ZooKeeper, majority":  {func(t *testing.T) *site { return ensembleSite(t) }, 2, true},
		"MariaDB":              {func(t *testing.T) *site { return mariaDBSite(t) }, 1, false},
		"PostgreSQL":           {func(t *testing.T) *site { return postgresSite(t) }, 1, false},
		"SQLite, file is busy": {func(t *testing.T) *site { return sqliteSite(t, t.TempDir()) }, 0, false},
	} {
		if test.deep && !testenv.Deep() {
			continue
		}
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := test.start(t)
			t.Run("frozen", func(t *testing.T) { frozen(t, s.at(t), test.affected) })
			if test.affected > 0 {
				t.Run("killed", func(t *testing.T) { killed(t, s.at(t), test.affected) })
			}
		})
	}
}

// frozen: a store does not answer for longer than a lease lasts, and then continues as if nothing
// had happened. Its holder knows that its lease has ended before the store can continue and grant
// the lock again.
func frozen(t *testing.T, s *site, affected int) {
	c := s.newFixture()
	third := s.client()
	heal := s.freeze(affected)
	before := len(c.next) // on a busy machine the lease may have expired earlier
	since := time.Now()
	c.fails(third, "another")
	t.Logf("lost after %v of a TTL of %v", c.waitLost().Sub(since), c.holder.TTL())
	// By the clock, whenever the test looks: no renewal was answered since.
	if c.held.Err() == nil {
		t.Error("the lease is still trusted")
	}
	time.Sleep(time.Until(since.Add(watchTime))) // all leases expire at the store
	if len(c.next) > before {
		t.Error("a frozen store has granted a lock")
	}
	heal()
	since = time.Now()
	c.release(c.waitGranted())
	t.Logf("granted %v after the end", time.Since(since))
	l, took := c.lockAgain(third, "another")
	t.Logf("the third client got the lock %v later", took)
	c.release(l)
	c.release(s.lock(c.holder, name)) // the client can hold locks again
}

// freeze freezes n of the servers, or the file of a store without servers.
func (s *site) freeze(n int) (heal func()) {
	s.t.Helper()
	if n == 0 {
		return busy(s)
	}
	for _, m := range s.servers[:n] {
		m.Pause()
	}
	return func() {
		for _, m := range s.servers[:n] {
			m.Continue()
		}
	}
}

// busy locks the file of an SQLite store for writing, as another program might.
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
