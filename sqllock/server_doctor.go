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

// Examiner is an optional interface of a Dialect that knows which server settings matter to locks.
type Examiner interface {
	// Examine checks the server's settings for leases of ttl, and reports findings with add. It
	// returns errors of the server, but none if the server denies access to a setting.
	Examine(ctx context.Context, db *sql.DB, ttl time.Duration, add func(driver.Finding)) error

	// Whoami returns a statement that yields one text, different for each server.
	Whoami() string
}

// Diagnose implements [driver.Diagnoser]. It checks whether waiters can be woken, which takes three
// seconds behind some poolers. It keeps the connection opened for that until Close.
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
	if unready != nil { // earlier findings may contain the reason
		return f.List, unready
	}
	f.Fine(name+".schema", "the tables exist, version %d", len(b.d.Migrations()))
	if err := b.lookAtHistories(ctx, &f); err != nil {
		return f.List, err
	}
	if err := b.lookAtRecords(ctx, &f); err != nil {
		return f.List, err
	}
	if n := b.db.Stats().MaxOpenConnections; n == 0 {
		f.Fine(name+".pool", "the pool allows any number of connections; 3 are reserved")
	} else {
		f.Fine(name+".pool", "the pool allows %d connections; 3 are reserved", n)
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
		do := "use a direct connection to the primary"
		if reason == NoSecretRight {
			do = "GRANT SELECT ON hf_secret to the role, if it takes locks; else examine the server as a role that does"
		}
		f.Add(driver.Finding{Code: name + ".wakeups", Severity: driver.Slows, Found: "waiters cannot be woken: " + reason,
			Why: "waiters poll every 5 to 50 ms instead: a hand-over takes that long, and the server is kept busy",
			Do:  do})
	} else {
		f.Fine(name+".wakeups", "waiters are woken")
	}
	first.Await(ctx)
	second, err := b.lookAtClock(ctx)
	if err != nil {
		return f.List, err
	}
	f.Clock(name+".clock", first, second, ttl)
	return f.List, nil
}

// lookAtHistories checks that the table of the histories can be read. Locks work without it, so no
// request for a lock shows that it is missing: an earlier release has not created it, or somebody has
// dropped it.
func (b *Server) lookAtHistories(ctx context.Context, f *doctor.Findings) error {
	code := b.d.Name() + ".history"
	err := b.queryPool(ctx, "SELECT 1 FROM hf_history WHERE 1 = 0", nil, nil)
	found := "the table hf_history does not exist"
	do := "run Init, or \"holdfast init\", or as a user who may create tables: " +
		strings.Join(strings.Fields(strings.Join(b.d.HistoryTable(), "; ")), " ")
	switch {
	case err == nil:
		f.Fine(code, "the table hf_history can be read")
		return nil
	case errors.Is(err, errNoTables):
	case errors.Is(err, errDenied): // MySQL says the same about a table that does not exist
		found = "this user may not read the table hf_history, or it does not exist"
		do = "grant the user the rights on it that it has on hf_lock; if there is no such table, " + do
	default:
		return err
	}
	f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: found,
		Why: "locks work, but no history can be read or added to: nobody learns who broke a lock, or why, and holders cannot " +
			"be asked to release", Do: do})
	return nil
}

// lookAtRecords checks the first records in use for damage.
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
		Found: fmt.Sprintf("%d of %d records cannot be read: %s", len(damaged), len(list),
			strings.Join(damaged[:min(len(damaged), 5)], "; ")),
		Why: "nobody can take, renew or release these names; other names are not affected",
		Do: "find out what else writes to the tables; delete the rows of these names from hf_lock when nobody works under them, " +
			"after a TTL at the earliest",
	})
	return nil
}

// oneServer checks whether the pool's connections lead to one server.
func (b *Server) oneServer(ctx context.Context, whoami string, f *doctor.Findings) error {
	code := b.d.Name() + ".one-server"
	const enough, patience = 3, time.Second
	servers := map[string]bool{}
	for n := range enough {
		limited, cancel := context.WithTimeout(ctx, patience)
		conn, err := b.db.Conn(limited)
		cancel()
		if err != nil {
			if n > 0 && ctx.Err() == nil { // the application uses the others
				break
			}
			return b.reached(err)
		}
		defer func() { _ = conn.Close() }() // keep it until the last is open, so that all differ
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
		Found: fmt.Sprintf("connections of the pool lead to several servers: %s",
			strings.Join(slices.Sorted(maps.Keys(servers)), "; ")),
		Why: "another server knows of a grant later, or never; and where servers exchange their writes (Galera, a group), " +
			"each judges leases by its own clock",
		Do: "connect all clients of these locks to one server: name it in the URL, or have the proxy write to one only"})
	return nil
}

// lookAtClock reads the server's clock on an open connection.
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

// reached is fault for callers that have asked nothing yet: nothing is uncertain.
func (b *Server) reached(err error) error {
	if said := b.fault(err); !errors.Is(said, driver.ErrUncertain) {
		return said
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}
