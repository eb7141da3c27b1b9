package mysql_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
	"github.com/holdfast-lock/holdfast/sqllock/mysql"
)

// refuses checks that a session is refused, with advice.
func refuses(t *testing.T, dsn, says string) {
	t.Helper()
	b := sqllock.New(pool(t, dsn), mysql.Dialect(), nil)
	defer func() { _ = b.Close() }()
	_, err := b.Open(t.Context(), driver.SessionConfig{ID: "a", TTL: ttl})
	if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), says) {
		t.Errorf("Open: %v; want ErrRefused and %q", err, says)
	}
}

// A connection that fails before its first request has done nothing.
func TestNoTLS(t *testing.T) {
	t.Parallel()
	b := sqllock.New(pool(t, maria(t).DSN("root", "")+"?tls=true"), mysql.Dialect(), nil)
	defer func() { _ = b.Close() }()
	_, err := b.Open(t.Context(), driver.SessionConfig{ID: "a", TTL: ttl})
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUncertain) ||
		!strings.Contains(err.Error(), "does not support TLS") {
		t.Errorf("Open: %v; want ErrUnavailable", err)
	}
}

// Settings that would break locks are refused before the first request.
func TestRefusedParameters(t *testing.T) {
	t.Parallel()
	server := maria(t, "--log-bin", "--binlog-format=STATEMENT", "--server-id=7")
	for params, says := range map[string]string{
		"autocommit=0":                                  "autocommit=1",
		"tx_isolation='READ-UNCOMMITTED'":               "READ UNCOMMITTED",
		"tx_isolation='READ-COMMITTED'":                 "binlog_format",
		"sql_mode='ANSI,EMPTY_STRING_IS_NULL'":          "EMPTY_STRING_IS_NULL",
		"character_set_connection=utf16":                "utf8mb4",
		"timestamp=1000":                                "SET timestamp",
		"sql_select_limit=100":                          "sql_select_limit=100",
		"tx_read_only=1&tx_isolation='REPEATABLE-READ'": "1792",
	} {
		t.Run(params, func(t *testing.T) { refuses(t, server.DSN("root", "")+"?"+dsnParams(params), says) })
	}
	operations(t, server.DSN("root", "")) // what is left: STATEMENT and REPEATABLE READ
}

func TestSmallPacket(t *testing.T) {
	t.Parallel()
	server := maria(t, "--max-allowed-packet=1M")
	for _, params := range []string{"sql_mode='STRICT_TRANS_TABLES'", "sql_mode=''"} {
		t.Run(params, func(t *testing.T) {
			c := join(t, server.DSN("root", "")+"?"+dsnParams(params), time.Minute)
			overfill(t, c, c.get(c.req("line "+params)), c.req)
			overfill(t, c, c.get(c.req("queued readers "+params)), c.shared)
			if params == "sql_mode=''" { // this mode could truncate long text
				overfill(t, c, c.get(c.shared("readers")), c.shared)
				overfill(t, c, c.get(c.permits("permits", 1, 999)),
					func(name string) *driver.Request { return c.permits(name, 1, 999) })
			}
		})
	}
	root := pool(t, server.DSN("root", ""))
	run(t, root, "SET GLOBAL max_allowed_packet = 65536")
	refuses(t, server.DSN("root", ""), "max_allowed_packet=65536")
}

// overfill sends more requests for h's name than fit, and checks that earlier ones are renewed and
// served.
func overfill(t *testing.T, c *client, h driver.Hold, ask func(name string) *driver.Request) {
	t.Helper()
	holds := []driver.Hold{h}
	waits := map[string]driver.Reply{}
	for {
		r := ask(h.Name)
		r.Info = strings.Repeat(" ", driver.MaxInfo) // the maximum length
		rep, err := c.Acquire(t.Context(), r)
		if errors.Is(err, driver.ErrRefused) && strings.Contains(err.Error(), "too many") {
			break
		}
		if err != nil {
			t.Fatalf("request %d: %v", len(holds), err)
		}
		if holds = append(holds, hold(r, rep.Token)); rep.Token == 0 {
			waits[r.ID] = rep
		}
	}
	if len(holds) < 15 {
		t.Errorf("only %d requests fit for %q", len(holds), h.Name)
	}
	if changes, err := c.Renew(t.Context(), holds); err != nil {
		t.Errorf("Renew of %d: %v", len(holds), err)
	} else {
		for _, ch := range changes {
			if ch.State != driver.Waiting {
				t.Errorf("Renew: %+v", ch)
			}
		}
	}
	if rec := c.inspect(h.Name); len(rec.Holders)+rec.Waiting != len(holds) {
		t.Errorf("%d hold and %d wait; want %d", len(rec.Holders), rec.Waiting, len(holds))
	}
	for _, h := range holds {
		if h.Token == 0 {
			h = c.served(&driver.Request{ID: h.ID, Name: h.Name}, waits[h.ID])
		}
		c.release(h)
	}
	if rec := c.inspect(h.Name); rec.Kind != driver.Unused {
		t.Errorf("in the end: %+v", rec)
	}
}
