package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/relay"
	"github.com/holdfast-lock/holdfast/internal/servers/postgres"
)

// PgBouncerServer is a PgBouncer of one test in front of a PostgreSQL server.
type PgBouncerServer struct{ server }

// PgBouncer starts a pooler for p's database postgres and p's users, all without a password. mode
// is "transaction" or "session": for how long a client keeps a connection to p. settings are lines
// as in its configuration ("default_pool_size=1"); they override the defaults.
func PgBouncer(t testing.TB, p *PostgresServer, mode string, settings ...string) *PgBouncerServer {
	t.Helper()
	program := needs(t, "pgbouncer", "PgBouncer (Debian, Ubuntu: apt-get install pgbouncer)", "/usr/sbin")
	if modes := []string{"transaction", "session"}; !slices.Contains(modes, mode) {
		t.Fatalf("PgBouncer: mode %q; want one of %q", mode, modes)
	}
	a := newAccount(t, "pgbouncer", "postgres")
	b := &PgBouncerServer{server{Addr: FreeAddr(t), t: t, what: "PgBouncer", account: &a}}
	// Its own console answers even if p does not.
	addr := b.Addr
	b.ready = func() error { return postgres.Welcomes("tcp", addr, "pgbouncer") }
	serverHost, serverPort, _ := net.SplitHostPort(p.Addr)
	host, port, _ := net.SplitHostPort(b.Addr)
	lines := []string{
		"[databases]",
		// postgres looks up users at p that are not in the file.
		fmt.Sprintf("postgres = host=%s port=%s auth_user=postgres", serverHost, serverPort),
		"[pgbouncer]",
		"listen_addr = " + host, "listen_port = " + port, "unix_socket_dir =", "pool_mode = " + mode,
		"auth_type = trust", "auth_file = " + a.write(t, "users", "\"postgres\" \"\"\n"), "admin_users = postgres",
		// It logs in again soon after an outage of p.
		"server_login_retry = 0.1", "max_client_conn = 200",
	}
	if p.TLS != nil {
		c := a.certs(t, p.TLS)
		lines = append(lines, "server_tls_sslmode = verify-full", "server_tls_ca_file = "+c.CA,
			"server_tls_cert_file = "+c.Cert, "server_tls_key_file = "+c.Key)
	}
	text := strings.Join(append(lines, settings...), "\n") + "\n"
	b.argv = []string{program, a.write(t, "pgbouncer.ini", text)}
	t.Cleanup(b.Kill)
	b.Start()
	b.Addr = withoutCancels(t, addr)
	return b
}

// withoutCancels returns an address that leads to addr, except for requests to cancel a statement.
// PgBouncer before 1.19 ends itself if a client goes away while its cancel request is under way
// (pgbouncer#801, #822), as one does that ends. The statements of these tests end soon without it.
func withoutCancels(t testing.TB, addr string) string {
	const cancel = "\x00\x00\x00\x10\x04\xd2\x16\x2e" // the length of the message, and its code
	r, err := relay.New(func(_ net.Conn, in *bufio.Reader) (relay.Ends, error) {
		first, err := in.Peek(len(cancel))
		if err == nil && string(first) == cancel {
			err = errors.New("a cancel request")
		}
		return relay.Ends{Server: addr}, err
	})
	must(t, err)
	t.Cleanup(r.Close)
	return r.Addr
}

// DSN returns the URL of database postgres through the pooler, for pgx.
func (b *PgBouncerServer) DSN(user string) string {
	return fmt.Sprintf("postgres://%s@%s/postgres?sslmode=disable", user, b.Addr)
}
