package testenv

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/internal/servers/mariadb"
)

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
	programs := needsAll(t, mariadb.Packages, mariadb.Find)
	needs(t, "mariadb", mariadb.Packages)
	a := newAccount(t, "mariadb", mariadb.User)
	m := &MariaDBServer{server: server{Addr: FreeAddr(t), t: t, what: "the MariaDB server", data: a.Path("data"),
		account: &a}, Socket: a.Path("s")}
	m.ready = func() error { return mariadb.Greets("tcp", m.Addr) }
	m.argv = install(t, a, programs.Install)
	_, port, _ := net.SplitHostPort(m.Addr)
	m.argv = append(m.argv, "--bind-address=127.0.0.1", "--port="+port, "--socket="+m.Socket)
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
