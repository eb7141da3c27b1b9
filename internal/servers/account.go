package servers

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Account is a folder for a server's files, and the user who owns them. MariaDB and PostgreSQL do
// not run as root.
type Account struct {
	Dir  string // short, because a socket's path has at most 107 bytes
	User string // "": the user of this process
}

// NewAccount creates a folder, which the caller removes. It belongs to user if this process is
// root's, else to the user of this process.
func NewAccount(prefix, user string) (a Account, err error) {
	if a.Dir, err = os.MkdirTemp("", prefix); err != nil {
		return a, err
	}
	if os.Geteuid() == 0 {
		a.User = user
	}
	if err = a.Own(a.Dir); err != nil {
		err = errors.Join(err, os.RemoveAll(a.Dir))
	}
	return a, err
}

// Path returns the path of a file in the folder.
func (a Account) Path(name string) string { return filepath.Join(a.Dir, name) }

// Own makes the user the owner of a file.
func (a Account) Own(path string) error {
	if a.User == "" {
		return nil
	}
	uid, gid, err := ids(a.User)
	if err != nil {
		return err
	}
	return os.Chown(path, uid, gid)
}

// Command returns a command that the user runs in the folder, without variables that configure it.
func (a Account) Command(argv ...string) (*exec.Cmd, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = a.Dir, PlainEnv()
	if a.User == "" {
		return cmd, nil
	}
	return cmd, runAs(cmd, a.User)
}

// PlainEnv returns the environment without variables that configure programs of MariaDB and
// PostgreSQL.
func PlainEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "PG") && !strings.HasPrefix(e, "MYSQL_") && !strings.HasPrefix(e, "MARIADB_") {
			env = append(env, e)
		}
	}
	return env
}
