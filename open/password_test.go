package open

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// passwordIn writes a password file.
func passwordIn(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The password of a store comes from a file. When file and server have another password, and the
// server closes all connections, the client connects again with the new one, and keeps its locks.
func TestPasswordFileIsReadAgain(t *testing.T) {
	const first, second = "f1rst-password-of-this-test", "s3cond-password-of-this-test"
	for name, c := range map[string]func(t *testing.T) (url string, change func()){
		"redis": func(t *testing.T) (string, func()) {
			s := testenv.RedisACL(t, []string{"user locks on >" + first + " ~* &* +@all"})
			return "redis://locks@" + s.Addr, func() {
				s.Do("ACL SETUSER locks resetpass >" + second)
				s.Do("CLIENT KILL USER locks")
			}
		},
		"mysql": func(t *testing.T) (string, func()) {
			s := testenv.MariaDB(t)
			s.Exec("CREATE USER locks IDENTIFIED BY '"+first+"'", "GRANT ALL ON test.* TO locks")
			return "mysql://locks@" + s.Addr + "/test", func() {
				s.Exec("ALTER USER locks IDENTIFIED BY '"+second+"'", "KILL USER locks")
			}
		},
		"postgres": func(t *testing.T) (string, func()) {
			s := testenv.Postgres(t)
			s.Exec("CREATE ROLE locks LOGIN SUPERUSER PASSWORD '"+first+"'",
				`COPY (SELECT 'host all locks 127.0.0.1/32 scram-sha-256' UNION ALL SELECT 'local all all trust'
					UNION ALL SELECT 'host all postgres 127.0.0.1/32 trust') TO PROGRAM 'cat >pg_hba.conf'`,
				"SELECT pg_reload_conf()")
			return "postgres://locks@" + s.Addr + "/postgres?sslmode=disable", func() {
				s.Exec("ALTER ROLE locks PASSWORD '"+second+"'",
					"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename='locks'")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, change := c(t)
			file := passwordIn(t, filepath.Join(t.TempDir(), "password"), first+"\n")
			full, ok := WithPasswordFile(address, file)
			if !ok {
				t.Fatalf("%s has no place for a password", address)
			}
			if _, err := Init(t.Context(), full); err != nil {
				t.Fatal(err)
			}
			s, err := Open(t.Context(), full)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			h, err := holdfast.New(t.Context(), s, &holdfast.Config{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close(context.Background())
			l, err := h.Mutex("a").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			passwordIn(t, file, second+"\n")
			change()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			for {
				other, err := h.Mutex("b").Lock(ctx)
				if err == nil {
					if err := other.Release(); err != nil {
						t.Error(err)
					}
					break
				}
				if ctx.Err() != nil || !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrUncertain) {
					t.Fatal(err)
				}
			}
			if err := l.Release(); err != nil {
				t.Error(err)
			}
			passwordIn(t, file, "wr0ng-password-of-this-test")
			if s, err := Open(t.Context(), full); err == nil {
				_, err = s.Inspect(t.Context(), "a")
				if err == nil || strings.Contains(Scrub(err.Error(), full), "wr0ng") {
					t.Errorf("a wrong password: %v", err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Every store with a password takes it from a file, and refuses a file that is none.
func TestPasswordFileOfEveryStore(t *testing.T) {
	dir := t.TempDir()
	file := passwordIn(t, filepath.Join(dir, "password"), "s3cret-of-the-file\n")
	empty := passwordIn(t, filepath.Join(dir, "empty"), "\n")
	for _, address := range []string{
		"redis://u@h", "redis://h/1?dial-timeout=1s", "rediss://u@h", "redis+unix://u@/s", "redis+sentinel://u@h/m",
		"redis+cluster://u@h", "redis+quorum://u@a,b,c", "valkey://h", "zookeeper://u@h/x?acl=private", "mysql://u@h/d",
		"mariadb://u@/d?socket=/s", "postgres://u@h/d", "postgres://h/d?listen=" + url.QueryEscape("postgres://u@g/d"),
	} {
		bad, ok := WithPasswordFile(address, empty)
		_, err := Open(t.Context(), bad)
		if !ok || !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), empty+": it is empty") {
			t.Errorf("%s: %v", bad, err)
		}
		full, _ := WithPasswordFile(address, file)
		if again, ok := WithPasswordFile(full, empty); ok || again != full {
			t.Errorf("%s has two files: %s", full, again)
		}
		if clean, ok := WithoutPassword(full); !ok || clean != full {
			t.Errorf("%s: without its password it is %s", full, clean)
		}
		both := strings.Replace(strings.Replace(full, "://u@", "://", 1), "://", "://u:pw-of-the-url@", 1)
		_, err = Open(t.Context(), both)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "only one of them is allowed") ||
			strings.Contains(err.Error(), "pw-of-the-url") {
			t.Errorf("%s: %v", both, err)
		}
	}
	for _, address := range []string{"", "sqlite:x", "memory:", "zookeeper://h",
		"redis://u:p@h", "postgres://u@h/d?password=p",
		"postgres://u@h/d?passfile=/f", "x", "redis://h:%zz@"} {
		if got, ok := WithPasswordFile(address, file); ok || got != address {
			t.Errorf("%s: %s", address, got)
		}
	}
}

// The text of a password file is masked like a password of the URL.
func TestPasswordFileIsMasked(t *testing.T) {
	s := testenv.RedisACL(t, []string{"user locks on >right-0ne ~* &* +@all"})
	const canary = "c4nary-in-a-file-81"
	file := passwordIn(t, filepath.Join(t.TempDir(), "password"), canary)
	full := "redis://locks@" + s.Addr + "?password-file=" + file
	_, err := Open(t.Context(), full)
	if !errors.Is(err, driver.ErrRefused) || strings.Contains(err.Error(), canary) {
		t.Error(err)
	}
	if got := Scrub("it said "+canary+".", full); got != "it said ***." {
		t.Error(got)
	}
}
