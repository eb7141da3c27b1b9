package open

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// withoutLibpq removes the variables for PostgreSQL from the environment of a test.
func withoutLibpq(t *testing.T) {
	t.Helper()
	for _, kv := range os.Environ() {
		if key, _, _ := strings.Cut(kv, "="); strings.HasPrefix(key, "PG") {
			t.Setenv(key, "") // restores the variable after the test
			_ = os.Unsetenv(key)
		}
	}
}

func TestPostgresConfig(t *testing.T) {
	withoutLibpq(t)
	type want struct {
		user, password, host, database string
		port                           uint16
		timeout                        time.Duration
		listen, app, path              string
	}
	for raw, w := range map[string]want{
		"postgres://u:p@h/d": {"u", "p", "h", "d", 5432, 5 * time.Second,
			"", "holdfast", ""},
		"PostgreSQL://u:p%2F%40@h:1/d": {"u", "p/@", "h", "d", 1, 5 * time.Second,
			"", "holdfast", ""},
		"postgres://u:a@b+c@h/d": {"u", "a@b+c", "h", "d", 5432,
			5 * time.Second, "", "holdfast", ""},
		"postgres://h/d?user=u&password=p+%20x": {"u", "p+ x", "h", "d", 5432,
			5 * time.Second, "", "holdfast", ""},
		"postgres:///d?host=/run/x&user=u&port=7": {"u", "", "/run/x", "d", 7,
			5 * time.Second, "", "holdfast", ""},
		"postgres://u:p@%2Frun%2FX/a%20b": {"u", "p", "/run/X", "a b", 5432,
			5 * time.Second, "", "holdfast", ""},
		"postgres://u@[fe80::1%25eth0]:2/d": {"u", "", "fe80::1%eth0", "d", 2,
			5 * time.Second, "", "holdfast", ""},
		"postgres://u@h/d?connect_timeout=2&application_name=a%20b&search_path=s": {"u", "", "h", "d", 5432, 2 * time.Second,
			"", "a b", "s"},
		"postgres://u@h/d?listen=postgres%3A%2F%2Fv%3Aq%40g%2Fe%3Fsslmode%3Drequire&sslmode=disable&default_query_exec_mode=cache_statement": {
			"u", "", "h", "d", 5432, 5 * time.Second, "postgres://v:q@g/e?sslmode=require", "holdfast", "",
		},
	} {
		c, own, err := postgresConfig(raw, invalidPostgres)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		got := want{c.User, c.Password, c.Host, c.Database, c.Port, c.ConnectTimeout, own.listen,
			c.RuntimeParams["application_name"], c.RuntimeParams["search_path"]}
		if got != w {
			t.Errorf("%s: %+v; want %+v", raw, got, w)
		}
		if c.DefaultQueryExecMode != pgx.QueryExecModeExec {
			t.Errorf("%s: statements are prepared: %v", raw, c.DefaultQueryExecMode)
		}
	}
	t.Setenv("PGCONNECT_TIMEOUT", "9")
	t.Setenv("PGAPPNAME", "mine")
	c, _, err := postgresConfig("postgres://u@h/d", invalidPostgres)
	if err != nil || c.ConnectTimeout != 9*time.Second || c.RuntimeParams["application_name"] != "mine" {
		t.Errorf("%v, %v", c, err)
	}
}

// An invalid URL is refused with the reason, and without the password.
func TestPostgresNonsense(t *testing.T) {
	withoutLibpq(t)
	for raw, word := range map[string]string{
		"postgres:h":                                   "no //",
		"postgres://u:s3cret/x@h/d":                    "%2F",
		"postgres://u:s3cret?x@h/d":                    "%3F",
		"postgres://u:s3cret#x@h/d":                    "%23",
		"postgres://u:s3cret%zz@h/d":                   "percent-encoded",
		"postgres://u:s3cret\"@h/d":                    "percent-encoded",
		"postgres://u:s3cret":                          "server 1: the port",
		"postgres://h1,h 2/d":                          "server 2: invalid host name",
		"postgres://u:s3cret@h:x/d":                    "port",
		"postgres://u:s3cret@h:70000/d":                "port",
		"postgres://u:s3cret@[::1/d":                   "percent-encoded",
		"postgres://h/d#x":                             "%23",
		"postgres://h/d?password=s3cret@":              "@ after the servers",
		"postgres://h/d?sslmode=":                      "empty",
		"postgres://h/d?sslmode=disable&sslmode=x":     "twice",
		"postgres://u:s3cret@h/d?sslmode=maybe":        "sslmode is invalid",
		"postgres://h/d?password=s3cret&sslmode=maybe": "sslmode is invalid",
		"postgres://u:s3cret@h/d?connect_timeout=soon": "connect_timeout",
		"postgres://u:s3cret@h/d?sslrootcert=/does/not/exist&sslmode=verify-ca":            "/does/not/exist",
		"postgres://u:s3cret@h/d?a=b;c":                                                    "query",
		"postgres://h/d?listen=h":                                                          "listen: ",
		"postgres://h/d?listen=mysql://h/d":                                                "listen: ",
		"postgres://h/d?listen=host%3Dh%20password%3Ds3cret":                               "listen: ",
		"postgres://h/d?listen=postgres%3A%2F%2Fu%3As3cret%40h%3Ax%2Fd":                    "listen: ",
		"postgres://h/d?listen=postgres%3A%2F%2Fu%3As3cret%40h%2Fd%3Fsslmode%3Dx":          "sslmode is invalid",
		"postgres://h/d?listen=postgres%3A%2F%2Fh%2Fd%3Flisten%3Dpostgres%253A%252F%252Fh": "itself",
	} {
		for _, open := range []func() error{
			func() error { _, err := Open(t.Context(), raw); return err },
			func() error { _, err := Schema(raw); return err },
			func() error { _, err := Init(t.Context(), raw); return err },
		} {
			err := open()
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), word) ||
				!strings.Contains(err.Error(), "allowed are postgres://HOST") &&
					!strings.HasSuffix(err.Error(), "did you mean postgres://h?") {
				t.Errorf("%q: %v; want ErrInvalid that says %q, and what is allowed", raw, err, word)
			} else if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %v", raw, err)
			}
		}
	}
}

func TestPostgresPlace(t *testing.T) {
	withoutLibpq(t)
	places(t, [][]string{
		{"postgres://u@h/d", "postgresql://x:s3cret@H:5432/d?sslmode=disable",
			"postgres://h:5432/d?user=y&listen=postgres%3A%2F%2Fz%3As3cret%40g"},
		{"postgres://u@h1:1,h2/d", "postgres://u@H2:5432,h1:1/d?sslmode=require"},
		{"postgres://d@h:1", "postgres://u@h:1/d"},
		{"postgres://u@h/D"},
		{"postgres://u@h/d?search_path=s"},
		{"postgres:///d?host=/run/x", "postgres://%2Frun%2Fx/d"},
		{"postgres:///d?host=/run/X"},
		{"mysql://u@h:5432/d"},
	})
}

// The secrets in listen are masked like those of the URL itself.
func TestPostgresSecrets(t *testing.T) {
	direct := "postgres://v:h%40dden81x@g/e?sslpassword=als0-81x&sslmode=require"
	raw := "postgres://u:s3cret81x@h/d?options=-c%20a%3Db&listen=" + url.QueryEscape(direct) +
		"&passfile=/p&require_auth=scram-sha-256&password=m+re-81x"
	got := Scrub("s3cret81x, h@dden81x, h%40dden81x, als0-81x and m+re-81x; dial "+raw+" and "+direct+" with /p", raw)
	for _, secret := range []string{"s3cret81x", "h@dden81x", "h%40dden81x", "h%2540dden81x", "als0-81x", "m+re-81x"} {
		if strings.Contains(got, secret) {
			t.Errorf("%q: %q", secret, got)
		}
	}
	if !strings.Contains(got, "with /p") {
		t.Errorf("%q: too much", got)
	}
	clean, ok := WithoutPassword(raw)
	want := "postgres://u@h/d?options=-c%20a%3Db&listen=" + url.QueryEscape("postgres://v@g/e?sslmode=require") +
		"&passfile=/p&require_auth=scram-sha-256"
	if !ok || clean != want {
		t.Errorf("%q, %v; want %q", clean, ok, want)
	}
	if clean, ok := WithoutPassword("postgres://h/d?listen=" + url.QueryEscape("postgres://u:secret%zz@h")); ok {
		t.Errorf("%q", clean)
	}
}

// FuzzPostgres: any URL is accepted with a server to connect to, or refused without showing its
// password. A URL for commands has no password.
func FuzzPostgres(f *testing.F) {
	for _, seed := range []string{
		"postgres://u:secretword@h:1,[::1]:2/d?sslmode=require&application_name=a", "postgresql://u:secretword@/d?host=/s",
		"postgres://u:secretword@h:x/", "postgres://:secretword@",
		"postgres://u:secretword@[::1/d", "postgres://u:secretword@h/%zz", "postgres://u:secretword@/@?@#@",
		"postgres:x://a/b", "postgres://u:secretword@h?listen=postgres%3A%2F%2Fh", "postgres://a,b:secretword@h,%2Fs/d",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if strings.Contains(raw, "ssl") || strings.Contains(raw, "file") || strings.Contains(raw, "service") ||
			strings.Contains(raw, "%") && strings.Contains(raw, "=") {
			return // the parameters may name files
		}
		cfg, own, err := postgresConfig(raw, invalidPostgres)
		inside := strings.Contains(raw, ":secretword@") && strings.Count(raw, "secretword") == 1
		switch {
		case err == nil && (cfg.Host == "" || cfg.ConnectTimeout < 0):
			t.Errorf("%q: nothing to connect to", raw)
		case err != nil && !errors.Is(err, driver.ErrInvalid):
			t.Errorf("%q: %v; want ErrInvalid", raw, err)
		case err != nil && inside && strings.Contains(Redact(err, raw).Error(), "secretword"):
			t.Errorf("%q: %v", raw, err)
		}
		clean, ok := WithoutPassword(raw)
		if err != nil || !ok {
			return
		}
		again, further, err := postgresConfig(clean, invalidPostgres)
		if err != nil {
			t.Fatalf("%q without its password is %q: %v", raw, clean, err)
		}
		if postgresPlace(again) != postgresPlace(cfg) || again.Password != "" && cfg.Password == "" {
			t.Errorf("%q without its password is %q: %s", raw, clean, postgresPlace(again))
		}
		if (further.listen == "") != (own.listen == "") {
			t.Errorf("%q: %q, without its password %q", raw, own.listen, further.listen)
		}
	})
}

// A server stops answering. Calls that no client bounds still end.
func TestSQLServerThatFallsSilent(t *testing.T) {
	m, p := testenv.MariaDB(t), testenv.Postgres(t)
	for name, c := range map[string]struct{ addr, url string }{
		"mysql":    {m.Addr, "mysql://root@ADDR/test"},
		"postgres": {p.Addr, "postgres://postgres@ADDR/postgres?sslmode=disable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := testenv.Proxy(t, c.addr)
			raw := strings.Replace(c.url, "ADDR", proxy.Addr, 1)
			if _, err := Init(t.Context(), raw); err != nil {
				t.Fatal(err)
			}
			s, err := Open(t.Context(), raw)
			if err != nil {
				t.Fatal(err)
			}
			ctx := context.Background() // without a deadline, as for an operator
			if _, err := s.List(ctx, "", "", 10); err != nil {
				t.Fatal(err)
			}
			if _, ok := s.Backend.(*sqlStore); !ok || s.Polling() != "" {
				t.Errorf("%T, %q", s.Backend, s.Polling())
			}
			s.Backend.(*sqlStore).limit = 200 * time.Millisecond
			proxy.Hole()
			_, inspect := s.Inspect(ctx, "a")
			_, list := s.List(ctx, "", "", 10)
			_, diagnose := s.Diagnose(ctx, raw, time.Second)
			patient, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			latch := s.RemoveLatch(patient, "a")
			if patient.Err() != nil {
				t.Error("RemoveLatch has no limit of its own")
			}
			for what, err := range map[string]error{"inspect": inspect, "latch": latch, "list": list, "diagnose": diagnose,
				"break": s.Break(ctx, "a", 1), "limit": s.SetLimit(ctx, "a", 1)} {
				if !errors.Is(err, driver.ErrUncertain) && !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("%s: %v", what, err)
				}
			}
			proxy.Heal()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Schema prints the statements that Init executes.
func TestSchema(t *testing.T) {
	for _, raw := range []string{"mysql://u@h/d", "mariadb://u@h/d", "postgres://h", "postgresql://h"} {
		list, err := Schema(raw)
		p, perr := tables(raw)
		if err != nil || perr != nil || strings.Join(list, ";") != strings.Join(sqllock.Schema(p.dialect), ";") ||
			len(list) < 5 {
			t.Errorf("%s: %q, %v, %v", raw, list, err, perr)
		}
		_ = p.close()
	}
	for _, raw := range []string{"", "memory:", "sqlite:x", "redis://h", "zk://h"} {
		if list, err := Schema(raw); err != nil || list != nil {
			t.Errorf("%s: %q, %v", raw, list, err)
		}
		if place, err := Init(t.Context(), raw); err != nil || place != "" {
			t.Errorf("%s: %q, %v", raw, place, err)
		}
	}
}
