// Package sqltest has the tests that the dialects share.
package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/modeltest"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// Clock is the dialects' time in the model test.
const Clock = "(SELECT c.us FROM hf_clock AS c)"

// Model compares a dialect with package rule, on a clock that the history moves: dialect must use
// Clock for the time. Each session has its own Server and pool, so all wake-ups go through the
// database.
func Model(t *testing.T, open func() *sql.DB, dialect sqllock.Dialect) func(*rapid.T) modeltest.Store {
	t.Helper()
	ctx := context.Background()
	admin := open()
	if err := sqllock.Init(ctx, admin, dialect); err != nil {
		t.Fatal(err)
	}
	do := func(statement string) {
		if _, err := admin.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	do("CREATE TABLE IF NOT EXISTS hf_clock (us BIGINT NOT NULL)")
	do("DELETE FROM hf_clock")
	do("INSERT INTO hf_clock (us) VALUES (1)")
	pools := &pools{open: open}
	return func(t *rapid.T) modeltest.Store {
		do("DELETE FROM hf_lock")
		do("DELETE FROM hf_done")
		now := int64(1_700_000_000_000_000)
		pass := func(d time.Duration) {
			now += d.Microseconds()
			do(fmt.Sprintf("UPDATE hf_clock SET us = %d", now))
		}
		pass(0)
		f := &front{pools: pools, dialect: &dropping{Dialect: dialect}}
		f.Server = f.server()
		t.Cleanup(f.close)
		return modeltest.Store{
			Backend: f,
			Pass:    pass,
			Drop:    func(lost bool) { f.dialect.drop = lost },
			Settle: func() {
				for _, look := range f.dialect.looks() {
					if err := look(ctx); err != nil {
						t.Fatal(err)
					}
				}
			},
			Check: f.check,
		}
	}
}

// pools keeps pools for later histories, since connecting costs more than a history.
type pools struct {
	open func() *sql.DB
	mu   sync.Mutex
	free []*sql.DB
}

func (p *pools) get() *sql.DB {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		db := p.free[n-1]
		p.free = p.free[:n-1]
		return db
	}
	return p.open()
}

func (p *pools) put(db *sql.DB) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, db)
}

// front is a backend whose sessions have a Server each. So do operators.
type front struct {
	*sqllock.Server
	pools   *pools
	dialect *dropping
	used    []*sql.DB
	servers []*sqllock.Server
}

func (f *front) server() *sqllock.Server {
	db := f.pools.get()
	b := sqllock.New(db, f.dialect, nil)
	f.used, f.servers = append(f.used, db), append(f.servers, b)
	return b
}

func (f *front) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := f.server().Open(ctx, cfg)
	return repeating{s}, err
}

func (f *front) RemoveLatch(ctx context.Context, name string) error {
	return repeated(ctx, func(ctx context.Context) error { return f.Server.RemoveLatch(ctx, name) })
}

// repeating repeats calls that use transactions.
type repeating struct{ driver.Session }

func (r repeating) SetCount(ctx context.Context, name string, n int64) (created bool, err error) {
	err = repeated(ctx, func(ctx context.Context) (err error) {
		created, err = r.Session.SetCount(ctx, name, n)
		return err
	})
	return created, err
}

func (r repeating) CountDown(ctx context.Context, name, id string) (left int64, err error) {
	err = repeated(ctx, func(ctx context.Context) (err error) {
		left, err = r.Session.CountDown(ctx, name, id)
		return err
	})
	return left, err
}

func (f *front) close() {
	for i, b := range f.servers {
		_ = b.Close() // it fails only with its connections, which are gone then
		f.pools.put(f.used[i])
	}
}

// check finds leaked connections.
func (f *front) check() error {
	for _, db := range f.used {
		// In use are the bell's connection, the reserved one, and for a moment that of background
		// work.
		for end := time.Now().Add(time.Minute); db.Stats().InUse > 2; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				return fmt.Errorf("%d connections are in use", db.Stats().InUse)
			}
		}
	}
	return nil
}

// dropping is a dialect whose single statements are executed but not answered while drop is set.
type dropping struct {
	sqllock.Dialect
	drop bool

	mu    sync.Mutex
	known []func(context.Context) error
}

func (d *dropping) looks() []func(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]func(context.Context) error(nil), d.known...)
}

func (d *dropping) OpenBell(ctx context.Context, cfg sqllock.BellConfig) (sqllock.Bell, string, error) {
	d.mu.Lock()
	d.known = append(d.known, cfg.Look)
	d.mu.Unlock()
	return d.Dialect.OpenBell(ctx, cfg)
}

func (d *dropping) lost(did bool, err error) error {
	if err == nil && did && d.drop {
		return driver.ErrUncertain
	}
	return err
}

func (d *dropping) Take(ctx context.Context, q sqllock.Querier, t *sqllock.Take) (sqllock.Taken, error) {
	got, err := d.Dialect.Take(ctx, q, t)
	return got, d.lost(got.Token != 0 || got.Queued, err)
}

func (d *dropping) Hand(ctx context.Context, q sqllock.Querier, h *sqllock.ReleaseReq) (sqllock.Handed, error) {
	got, err := d.Dialect.Hand(ctx, q, h)
	return got, d.lost(got.Done, err)
}

func (d *dropping) Leave(ctx context.Context, q sqllock.Querier, name, id string) (bool, error) {
	did, err := d.Dialect.Leave(ctx, q, name, id)
	return did, d.lost(did, err)
}
