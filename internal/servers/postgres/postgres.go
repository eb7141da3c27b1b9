// Package postgres configures PostgreSQL servers that package servers starts.
package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// Packages says what must be installed.
const Packages = "PostgreSQL (Debian, Ubuntu: apt-get install postgresql)"

// User is the user of the server if this process is root's.
const User = "postgres"

// Programs is the folder of the server's programs. They have one version.
type Programs string

// Find returns the programs that are installed.
func Find() (Programs, error) {
	initdb, err := servers.Find("initdb", "/usr/lib/postgresql/*/bin")
	if err == nil {
		initdb, err = filepath.EvalSymlinks(initdb) // PATH may link to only one of the programs
	}
	return Programs(filepath.Dir(initdb)), err
}

// Path returns the path of a program.
func (p Programs) Path(program string) string { return filepath.Join(string(p), program) }

// Install creates the data of a server in the account's folder, and returns the command line of the
// server, to which the caller adds Settings: its address at least. Every role may log in without a
// password; there is only the superuser postgres. A commit survives a kill of the server, not a
// crash of the machine. keep is that of servers.Account.Install.
func (p Programs) Install(ctx context.Context, a servers.Account, keep bool) (argv []string, err error) {
	data := a.Path("data")
	err = a.Install(ctx, keep, []string{p.Path("initdb"), "--pgdata=" + data}, []string{"--auth=trust",
		"--username=postgres", "--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C", "--wal-segsize=1"})
	return append([]string{p.Path("postgres"), "-D", data}, Settings(
		"unix_socket_directories="+a.Dir, "fsync=off", "shared_buffers=32MB", "max_connections=200",
		// In the data folder, which its owner removes.
		"dynamic_shared_memory_type=mmap")...), err
}

// Settings returns the words of a command line that make settings ("fsync=on"). The last of one
// name counts.
func Settings(all ...string) (argv []string) {
	for _, s := range all {
		argv = append(argv, "-c", s)
	}
	return argv
}

// Socket returns the path of a server's socket.
func Socket(a servers.Account, port string) string { return a.Path(".s.PGSQL." + port) }

// Unshare removes the shared memory that a killed server has left. A system has room for some
// thousand such segments; without room no PostgreSQL starts.
func Unshare(a servers.Account) {
	b, err := os.ReadFile(filepath.Join(a.Path("data"), "postmaster.pid"))
	if err != nil { // it ended normally
		return
	}
	const line = 6 // a key, and the segment's number
	if lines := strings.Split(string(b), "\n"); len(lines) > line {
		if key := strings.Fields(lines[line]); len(key) == 2 {
			// It may be gone, or the system lacks the program. In a container root may not remove it.
			if remove, err := a.Command("ipcrm", "--shmem-id", key[1]); err == nil {
				_ = remove.Run()
			}
		}
	}
}

// Welcomes returns nil if a server with PostgreSQL's protocol would admit a client. The server has
// ended that client's session when Welcomes returns.
func Welcomes(network, addr, database string) error {
	const version = 3 << 16
	text := "user\x00postgres\x00database\x00" + database + "\x00\x00"
	hello := binary.BigEndian.AppendUint32(nil, uint32(8+len(text)))
	hello = binary.BigEndian.AppendUint32(hello, version)
	hello = append(hello, text...)
	return servers.Exchange(network, addr, hello, func(c net.Conn) error {
		var kind [1]byte
		if _, err := io.ReadFull(c, kind[:]); err != nil {
			return err
		}
		if kind[0] != 'R' { // an 'E' is an error: the server is starting
			reply, err := io.ReadAll(c)
			return cmp.Or(err, fmt.Errorf("%q", append(kind[:], reply...)))
		}
		if _, err := c.Write([]byte{'X', 0, 0, 0, 4}); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, c) // the server closes the connection
		return err
	})
}
