package sqltest

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// Tests with several processes run the test binary again. It takes one lock, prints the token, and
// ends with its input.
const (
	helperDSN  = "SQLTEST_HELPER_DSN"
	helperName = "SQLTEST_HELPER_NAME"
	helperTTL  = "SQLTEST_HELPER_TTL"
)

// Helper is called by TestMain. In a helper process it does not return.
func Helper(open func(dsn string) (*sql.DB, error), d func() sqllock.Dialect) {
	dsn, name := os.Getenv(helperDSN), os.Getenv(helperName)
	if dsn == "" {
		return
	}
	err := func() error {
		db, err := open(dsn)
		if err != nil {
			return err
		}
		ttl, err := time.ParseDuration(os.Getenv(helperTTL))
		if err != nil {
			return err
		}
		c, err := holdfast.New(context.Background(), sqllock.New(db, d(), nil), &holdfast.Config{TTL: ttl})
		if err != nil {
			return err
		}
		l, err := c.Mutex(name).Lock(context.Background())
		if err != nil {
			return err
		}
		fmt.Println("locked", l.Token())
		_, _ = io.Copy(io.Discard, os.Stdin)
		return l.Release()
	}()
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// helper is such a process.
type helper struct {
	cmd   *exec.Cmd
	in    io.Closer
	lines *bufio.Reader
}

// start starts a helper that waits for the lock of the test's name, which a holds.
func (x *Sockets) start(t *testing.T, a *proc, dsn string, ttl time.Duration) (
	h *helper, server string) {
	t.Helper()
	h = &helper{cmd: exec.Command(os.Args[0])}
	h.cmd.Env = append(os.Environ(), helperDSN+"="+dsn, helperName+"="+t.Name(), helperTTL+"="+ttl.String())
	h.cmd.Stderr = os.Stderr
	in, err := h.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.in, h.lines = in, bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	})
	db := x.Open()
	until(t, "the helper waits, and its socket is known", func() bool {
		for _, id := range SocketOf(a.b).Others() {
			n := 0
			err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM hf_lock WHERE line LIKE '% "+id+".%'").Scan(&n)
			if err == nil && n == 1 {
				server = id
			}
		}
		return server != ""
	})
	return h, server
}

// locked returns the token of the helper's lock.
func (h *helper) locked(t *testing.T) (token uint64) {
	t.Helper()
	line, err := h.lines.ReadString('\n')
	if _, wrong := fmt.Sscanf(line, "locked %d", &token); err != nil || wrong != nil {
		t.Fatalf("the helper printed %q, %v", strings.TrimSpace(line), err)
	}
	return token
}

// client returns a client of the library.
func (x *Sockets) client(t *testing.T) *holdfast.Client {
	t.Helper()
	b := sqllock.New(x.Open(), x.Dialect(), nil)
	t.Cleanup(func() { _ = b.Close() })
	c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// lockBehind makes c wait behind one other.
func lockBehind(t *testing.T, a *proc, c *holdfast.Client) <-chan *holdfast.Lease {
	t.Helper()
	got := make(chan *holdfast.Lease, 1)
	go func() {
		defer close(got)
		l, err := c.Mutex(t.Name()).Lock(t.Context())
		if err != nil {
			t.Errorf("Lock: %v", err)
			return
		}
		got <- l
	}()
	until(t, "two wait", func() bool {
		rec, err := a.b.Inspect(t.Context(), t.Name())
		return err == nil && rec.Waiting == 2
	})
	return got
}
