package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// account is a folder for a server's files, and the user to whom they belong.
type account struct {
	dir  string // its path is short: that of a socket in it has at most 107 bytes
	user string // "" the test's own
}

// newAccount makes a folder that is removed when the test ends. It belongs to user if the
// test is root's, else to whoever runs the test.
func newAccount(t testing.TB, prefix, user string) account {
	t.Helper()
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a := account{dir: dir}
	if os.Geteuid() == 0 {
		a.user = user
	}
	a.own(t, dir)
	return a
}

// path is that of a file in the folder.
func (a account) path(name string) string { return filepath.Join(a.dir, name) }

// own gives a file to the user.
func (a account) own(t testing.TB, path string) {
	t.Helper()
	if a.user == "" {
		return
	}
	uid, gid := ids(t, a.user)
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

// write makes a file of the user's, which nobody else may read.
func (a account) write(t testing.TB, name, text string) string {
	t.Helper()
	path := a.path(name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a.own(t, path)
	return path
}

// certs copies the certificates to where the user can read them.
func (a account) certs(t testing.TB, c *Certs) *Certs {
	t.Helper()
	file := func(from string) string {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		return a.write(t, filepath.Base(from), string(b))
	}
	return &Certs{CA: file(c.CA), Cert: file(c.Cert), Key: file(c.Key)}
}

// command is a program of the server's, run by the user in the folder.
func (a account) command(t testing.TB, argv []string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = a.dir, plainEnv()
	if a.user != "" {
		runAs(t, cmd, a.user)
	}
	return cmd
}

// plainEnv is the environment without what configures programs of MariaDB and PostgreSQL.
func plainEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "PG") && !strings.HasPrefix(e, "MYSQL_") && !strings.HasPrefix(e, "MARIADB_") {
			env = append(env, e)
		}
	}
	return env
}

// finish runs a program to its end and returns what it printed. The test fails if the
// program does, or runs for half a minute.
func finish(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	p := start(t, cmd, new(output))
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	select {
	case <-p.done:
	case <-limit.C:
		_ = cmd.Process.Kill()
		<-p.done
	}
	if !cmd.ProcessState.Success() {
		t.Fatalf("%s: %v\n%s", cmd, cmd.ProcessState, p.out.String())
	}
	return p.out.String()
}
