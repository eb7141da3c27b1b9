package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// account is a folder for a server's files, and the user who owns them.
type account struct {
	dir  string // short, because a socket's path has at most 107 bytes
	user string // "": the user of the test
}

// newAccount creates a folder that is removed when the test ends. The folder belongs to user if the
// test runs as root, else to the user of the test.
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

// path returns the path of a file in the folder.
func (a account) path(name string) string { return filepath.Join(a.dir, name) }

// own makes the user the owner of a file.
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

// write creates a file that only the user may read.
func (a account) write(t testing.TB, name, text string) string {
	t.Helper()
	path := a.path(name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a.own(t, path)
	return path
}

// certs copies the certificates to a place where the user can read them.
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

// command returns a command that the user runs in the folder.
func (a account) command(t testing.TB, argv []string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = a.dir, plainEnv()
	if a.user != "" {
		runAs(t, cmd, a.user)
	}
	return cmd
}

// plainEnv returns the environment without variables that configure programs of MariaDB and
// PostgreSQL.
func plainEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "PG") && !strings.HasPrefix(e, "MYSQL_") && !strings.HasPrefix(e, "MARIADB_") {
			env = append(env, e)
		}
	}
	return env
}

// finish runs a program to its end and returns its output. The test fails if the program fails, or
// runs for half a minute.
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
