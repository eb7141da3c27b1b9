package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

var _ driver.Diagnoser = (*Server)(nil)

// Examiner is what a Dialect may be beside: it knows which settings of its servers matter to locks.
type Examiner interface {
	// Examine looks at the server's settings, for leases of ttl, and adds what it finds with add. An error is
	// that of the server; what the server refuses to tell is not one.
	Examine(ctx context.Context, db *sql.DB, ttl time.Duration, add func(driver.Finding)) error

	// Whoami is a statement that answers with one text, by which servers can be told apart.
	Whoami() string
}

// Diagnose implements [driver.Diagnoser]. It asks whether waiters can be woken, which behind some poolers takes
// three seconds, and keeps what it has opened for that until Close.
func (b *Server) Diagnose(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	var f doctor.Findings
	name := b.d.Name()
	unready := b.ready(ctx)
	if unready != nil && !errors.Is(unready, driver.ErrRefused) {
		return nil, b.reached(unready)
	}
	first, err := b.lookAtClock(ctx)
	if err != nil {
		return nil, err
	}
	if e, ok := b.d.(Examiner); ok {
		if err := e.Examine(ctx, b.db, ttl, f.Add); err != nil {
			return f.List, b.fault(err)
		}
		if err := b.oneServer(ctx, e.Whoami(), &f); err != nil {
			return f.List, err
		}
	}
	if unready != nil { // what was found before may be the reason, or is of use all the same
		return f.List, unready
	}
	f.Fine(name+".schema", "the tables are there, of version %d", len(b.d.Migrations()))
	if err := b.lookAtRecords(ctx, &f); err != nil {
		return f.List, err
	}
	if n := b.db.Stats().MaxOpenConnections; n == 0 {
		f.Fine(name+".pool", "the pool allows any number of connections; 3 are kept")
	} else {
		f.Fine(name+".pool", "the pool allows %d connections; 3 are kept", n)
	}
	slowest, err := doctor.Slowest(ctx, 10, func(ctx context.Context) error {
		_, err := b.version(ctx, b.on(b.pool))
		return err
	})
	if err != nil {
		return f.List, err
	}
	f.Latency(name+".latency", slowest, 10, ttl)
	if err := b.listen(ctx); err != nil {
		return f.List, err
	}
	if reason := b.Polling(); reason != "" {
		f.Add(driver.Finding{Code: name + ".wakeups", Severity: driver.Slows, Found: "who waits cannot be woken: " + reason,
			Why: "who waits asks every 5 to 50 ms instead: a hand-over takes that long, and the server is kept busy",
			Do:  "a direct connection to the one server that is written to"})
	} else {
		f.Fine(name+".wakeups", "who waits is woken")
	}
	first.Await(ctx)
	second, err := b.lookAtClock(ctx)
	if err != nil {
		return f.List, err
	}
	f.Clock(name+".clock", first, second, ttl)
	return f.List, nil
}

// lookAtRecords looks for records that cannot be read, among the first that are in use.
func (b *Server) lookAtRecords(ctx context.Context, f *doctor.Findings) error {
	const most = 10_000
	code := b.d.Name() + ".records"
	list, err := b.List(ctx, "", "", most)
	if err != nil {
		return err
	}
	var damaged []string
	for _, r := range list {
		if r.Damaged != "" {
			damaged = append(damaged, r.Damaged)
		}
	}
	if len(damaged) == 0 {
		f.Fine(code, "all of %d records can be read", len(list))
		return nil
	}
	f.Add(driver.Finding{Code: code, Severity: driver.Slows,
		Found: fmt.Sprintf("%d of %d records cannot be read: %s", len(damaged), len(list), strings.Join(damaged[:min(len(damaged), 5)], "; ")),
		Why:   "nobody can take, renew or release these names; other names are not concerned",
		Do: "find out who writes to the tables beside holdfast; delete the rows of these names from hf_lock when nobody works under them, " +
			"after a TTL at the earliest",
	})
	return nil
}

// oneServer looks whether connections of the pool lead to one server.
func (b *Server) oneServer(ctx context.Context, whoami string, f *doctor.Findings) error {
	code := b.d.Name() + ".one-server"
	const enough, patience = 3, time.Second
	servers := map[string]bool{}
	for n := range enough {
		limited, cancel := context.WithTimeout(ctx, patience)
		conn, err := b.db.Conn(limited)
		cancel()
		if err != nil {
			if n > 0 && ctx.Err() == nil { // the application has the others
				break
			}
			return b.reached(err)
		}
		defer func() { _ = conn.Close() }() // held until the last is there, so that all are different
		var who string
		text, args := b.d.Inline(whoami, nil)
		if err := conn.QueryRowContext(ctx, text, args...).Scan(&who); err != nil {
			return b.fault(err)
		}
		servers[who] = true
	}
	if len(servers) == 1 {
		f.Fine(code, "connections of the pool lead to one server")
		return nil
	}
	f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
		Found: fmt.Sprintf("connections of the pool lead to several servers: %s", strings.Join(slices.Sorted(maps.Keys(servers)), "; ")),
		Why: "what is granted at one is not known at the other at once, or never; and where they exchange their writes (Galera, a group), " +
			"each judges leases by a clock of its own",
		Do: "send all who use these locks to one server: name it in the URL, or have the proxy write to one only"})
	return nil
}

// lookAtClock asks for the server's clock on a connection that is there already.
func (b *Server) lookAtClock(ctx context.Context) (doctor.Look, error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return doctor.Look{}, b.reached(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.PingContext(ctx); err != nil {
		return doctor.Look{}, b.reached(err)
	}
	l, err := doctor.LookAt(ctx, func(ctx context.Context) (us int64, err error) {
		text, args := b.d.Inline(b.text("SELECT {now}"), nil)
		err = conn.QueryRowContext(ctx, text, args...).Scan(&us)
		return us, err
	})
	return l, b.fault(err)
}

// reached is fault for what has asked nothing yet.
func (b *Server) reached(err error) error {
	if err = b.fault(err); errors.Is(err, driver.ErrUncertain) {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}
