package testenv

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// account is a servers.Account of a test.
type account struct{ servers.Account }

// newAccount creates a folder that is removed when the test ends.
func newAccount(t testing.TB, prefix, user string) account {
	t.Helper()
	a, err := servers.NewAccount(prefix, user)
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(a.Dir) })
	return account{a}
}

// install creates the data of a server, a copy of what the user's cache keeps, and returns the
// server's command line.
func install(t testing.TB, a account, f func(context.Context, servers.Account, bool) ([]string, error)) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	argv, err := f(ctx, a.Account, true)
	must(t, err)
	return argv
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write creates a file that only the user may read.
func (a account) write(t testing.TB, name, text string) string {
	t.Helper()
	path := a.Path(name)
	must(t, os.WriteFile(path, []byte(text), 0o600))
	must(t, a.Own(path))
	return path
}

// certs copies the certificates to a place where the user can read them.
func (a account) certs(t testing.TB, c *Certs) *Certs {
	t.Helper()
	file := func(from string) string {
		b, err := os.ReadFile(from)
		must(t, err)
		return a.write(t, filepath.Base(from), string(b))
	}
	return &Certs{CA: file(c.CA), Cert: file(c.Cert), Key: file(c.Key)}
}

// finish runs a program of the user to its end.
func (a account) finish(t testing.TB, argv ...string) {
	t.Helper()
	cmd, err := a.Command(argv...)
	must(t, err)
	finish(t, cmd)
}

// finish runs a program to its end and returns its output. The test fails if the program fails, or
// runs for half a minute.
func finish(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := servers.Run(ctx, cmd)
	must(t, err)
	return out
}
