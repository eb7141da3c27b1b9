package testenv

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

const mariaDBPackages = "MariaDB (Debian, Ubuntu: apt-get install mariadb-server)"

// MariaDBServer is a MariaDB server of one test, with a data folder of its own.
type MariaDBServer struct {
	server
	Socket string // path of the Unix socket
}

// MariaDB starts a server. args are further arguments as on its command line
// ("--innodb-flush-log-at-trx-commit=1"); they override the defaults. The database test exists and
// is empty; root has no password. A commit survives Kill; to survive a crash of the machine it
// needs the argument above.
func MariaDB(t testing.TB, args ...string) *MariaDBServer {
	t.Helper()
	return startMariaDB(t, false, args)
}

// MariaDBTLS starts a server that accepts only TLS on TCP. It demands a certificate of the server's
// own Certs from root, and from users that were created with REQUIRE X509. A client needs
// TLS.Client as its configuration's TLS; a DSN cannot contain it.
func MariaDBTLS(t testing.TB, args ...string) *MariaDBServer {
	t.Helper()
	m := startMariaDB(t, true, args)
	m.Exec("ALTER USER root@'127.0.0.1' REQUIRE X509")
	return m
}

func startMariaDB(t testing.TB, secure bool, args []string) *MariaDBServer {
	t.Helper()
	program := needs(t, "mariadbd", mariaDBPackages, "/usr/sbin")
	install := needs(t, "mariadb-install-db", mariaDBPackages)
	needs(t, "mariadb", mariaDBPackages)
	a := newAccount(t, "mariadb", "mysql")
	m := &MariaDBServer{server: server{Addr: freeAddr(t), t: t, what: "the MariaDB server", data: a.Path("data"),
		account: &a}, Socket: a.Path("s")}
	m.ready = m.greets
	// The log has the size of the installation: for another size the server would create it again.
	const logSize = "--innodb-log-file-size=16M"
	data := []string{"--no-defaults", "--datadir=" + a.Path("data"), "--tmpdir=" + a.Dir, "--skip-name-resolve"}
	a.installed(t, append([]string{install}, data...),
		[]string{"--auth-root-authentication-method=normal", "--skip-test-db", logSize})
	// A database is a folder. The installer would create one that is open to everybody.
	database := filepath.Join(a.Path("data"), "test")
	must(t, os.Mkdir(database, 0o700))
	must(t, a.Own(database))
	_, port, _ := net.SplitHostPort(m.Addr)
	m.argv = append(append([]string{program}, data...), logSize, "--bind-address=127.0.0.1", "--port="+port,
		"--socket="+m.Socket, "--pid-file="+a.Path("pid"), "--skip-log-bin", "--performance-schema=OFF",
		"--innodb-buffer-pool-size=32M", "--max-connections=200",
		// Written at each commit, so that Kill loses nothing, and synced once a second.
		"--innodb-flush-log-at-trx-commit=2")
	if secure {
		m.TLS = NewCerts(t)
		c := a.certs(t, m.TLS)
		m.argv = append(m.argv, "--require-secure-transport=ON", "--ssl-ca="+c.CA, "--ssl-cert="+c.Cert, "--ssl-key="+c.Key)
	}
	m.argv = append(m.argv, args...)
	t.Cleanup(m.Kill)
	m.Start()
	return m
}

// greets returns nil if the server would greet a client.
func (m *MariaDBServer) greets() error {
	c, err := net.Dial("tcp", m.Addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return exchange(c, nil, func(r io.Reader) error {
		var head [5]byte // length and number of the packet; protocol version
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		if head[4] != 10 {
			return fmt.Errorf("greeting of version %d", head[4])
		}
		return nil
	})
}

// DSN returns a data source name of go-sql-driver for the database test.
func (m *MariaDBServer) DSN(user, password string) string { return m.DSNAt(m.Addr, user, password) }

// DSNAt returns a DSN with another address, such as a proxy's.
func (m *MariaDBServer) DSNAt(addr, user, password string) string {
	if password != "" {
		user += ":" + password
	}
	return fmt.Sprintf("%s@tcp(%s)/test", user, addr)
}

// Exec runs statements as root on the database test, one after the other in one session. The first
// failure fails the test.
func (m *MariaDBServer) Exec(statements ...string) {
	m.t.Helper()
	// a procedure contains semicolons
	const end = "~;;~"
	cmd := exec.Command("mariadb", "--no-defaults", "--socket="+m.Socket, "--user=root", "--batch", "--binary-mode",
		"--default-character-set=utf8mb4", "--delimiter="+end, "test")
	cmd.Env = servers.PlainEnv()
	cmd.Stdin = strings.NewReader(strings.Join(statements, end))
	finish(m.t, cmd)
}
