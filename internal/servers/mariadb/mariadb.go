// Package mariadb configures MariaDB servers that package servers starts.
package mariadb

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// Packages says what must be installed.
const Packages = "MariaDB (Debian, Ubuntu: apt-get install mariadb-server)"

// User is the user of the server if this process is root's.
const User = "mysql"

// Programs are the paths of the server's programs.
type Programs struct{ Server, Installer string }

// Find returns the programs that are installed.
func Find() (p Programs, err error) {
	if p.Server, err = servers.Find("mariadbd", "/usr/sbin"); err == nil {
		p.Installer, err = servers.Find("mariadb-install-db")
	}
	return p, err
}

// Install creates the data of a server in the account's folder, and returns the command line of the
// server, to which the caller adds an address. The database test exists and is empty; root has no
// password. A commit survives a kill of the server, not a crash of the machine. keep is that of
// servers.Account.Install.
func (p Programs) Install(ctx context.Context, a servers.Account, keep bool) (argv []string, err error) {
	// The log has the size of the installation: for another size the server would create it again.
	const logSize = "--innodb-log-file-size=16M"
	data := []string{"--no-defaults", "--datadir=" + a.Path("data"), "--tmpdir=" + a.Dir, "--skip-name-resolve"}
	err = a.Install(ctx, keep, append([]string{p.Installer}, data...),
		[]string{"--auth-root-authentication-method=normal", "--skip-test-db", logSize})
	if err != nil {
		return nil, err
	}
	// A database is a folder. The installer would create one that is open to everybody.
	database := filepath.Join(a.Path("data"), "test")
	if err := os.Mkdir(database, 0o700); err != nil {
		return nil, err
	}
	return append(append([]string{p.Server}, data...), logSize, "--pid-file="+a.Path("pid"), "--skip-log-bin",
		"--performance-schema=OFF", "--innodb-buffer-pool-size=32M", "--max-connections=200",
		// Written at each commit, so that a kill loses nothing, and synced once a second.
		"--innodb-flush-log-at-trx-commit=2"), a.Own(database)
}

// Greets returns nil if the server at an address would greet a client.
func Greets(network, addr string) error {
	return servers.Exchange(network, addr, nil, func(c net.Conn) error {
		var head [5]byte // length and number of the packet; protocol version
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		if head[4] != 10 {
			return fmt.Errorf("greeting of version %d", head[4])
		}
		return nil
	})
}
