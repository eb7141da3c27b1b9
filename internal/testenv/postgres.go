package testenv

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/internal/servers/postgres"
)

// PostgresServer is a PostgreSQL server of one test, with a data folder of its own. It has one
// process per client and some more; Pause and Kill affect all of them.
type PostgresServer struct{ server }

// Postgres starts a server. settings ("fsync=on") override the defaults. Every existing role may
// log in without a password; at first there is only the superuser postgres. A commit survives Kill;
// to survive a crash of the machine it needs the setting above.
func Postgres(t testing.TB, settings ...string) *PostgresServer {
	t.Helper()
	return startPostgres(t, false, settings)
}

// PostgresTLS starts a server that accepts only TLS on TCP, and demands a certificate of the
// server's own Certs from every user.
func PostgresTLS(t testing.TB, settings ...string) *PostgresServer {
	t.Helper()
	return startPostgres(t, true, settings)
}

func startPostgres(t testing.TB, secure bool, settings []string) *PostgresServer {
	t.Helper()
	programs := needsAll(t, postgres.Packages, postgres.Find)
	a := newAccount(t, "postgres", postgres.User)
	p := &PostgresServer{server{Addr: FreeAddr(t), t: t, what: "the PostgreSQL server", data: a.Path("data"), account: &a,
		run: servers.Server{Quit: syscall.SIGINT, Forks: true}}}
	p.ready = func() error { return postgres.Welcomes("unix", p.socket(), "postgres") }
	p.argv = install(t, a, programs.Install)
	host, port, _ := net.SplitHostPort(p.Addr)
	all := []string{"listen_addresses=" + host, "port=" + port}
	if secure {
		p.TLS = NewCerts(t)
		c := a.certs(t, p.TLS)
		all = append(all, "ssl=on", "ssl_ca_file="+c.CA, "ssl_cert_file="+c.Cert, "ssl_key_file="+c.Key)
		a.write(t, filepath.Join("data", "pg_hba.conf"),
			"local all all trust\nhostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n")
	}
	p.argv = append(p.argv, postgres.Settings(append(all, settings...)...)...)
	t.Cleanup(func() { p.Kill(); postgres.Unshare(a.Account) })
	p.Start()
	return p
}

func (p *PostgresServer) socket() string {
	_, port, _ := net.SplitHostPort(p.Addr)
	return postgres.Socket(p.account.Account, port)
}

// DSN returns the URL of database postgres, for pgx.
func (p *PostgresServer) DSN(user string) string { return p.DSNAt(p.Addr, user) }

// DSNAt returns a DSN with another address, such as a proxy's.
func (p *PostgresServer) DSNAt(addr, user string) string {
	q := url.Values{"sslmode": {"disable"}}
	if p.TLS != nil {
		q = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {p.TLS.CA}, "sslcert": {p.TLS.Cert}, "sslkey": {p.TLS.Key}}
	}
	u := url.URL{Scheme: "postgres", User: url.User(user), Host: addr, Path: "postgres", RawQuery: q.Encode()}
	return u.String()
}

// Exec runs statements as postgres, each in a transaction of its own, in one session. The first
// failure fails the test.
func (p *PostgresServer) Exec(statements ...string) {
	p.t.Helper()
	p.psql(statements...)
}

// ourName is the name of psql's sessions at the server. They may last a moment longer than psql.
const ourName = "testenv"

// psql runs statements and returns the rows, one per line.
func (p *PostgresServer) psql(statements ...string) string {
	p.t.Helper()
	_, port, _ := net.SplitHostPort(p.Addr)
	cmd := exec.Command(filepath.Join(filepath.Dir(p.argv[0]), "psql"), "--no-psqlrc", "--host="+p.account.Dir,
		"--port="+port,
		"--username=postgres", "--dbname=dbname=postgres application_name="+ourName, "--set=ON_ERROR_STOP=1", "--quiet",
		"--no-align", "--tuples-only")
	for _, s := range statements {
		cmd.Args = append(cmd.Args, "--command="+s)
	}
	cmd.Env = servers.PlainEnv()
	return finish(p.t, cmd)
}

// Backends returns the process ids of the server's client sessions for which a condition on
// pg_stat_activity holds ("query LIKE 'LISTEN%'"); "" is all. They are in order of connection, and
// without those of Exec.
func (p *PostgresServer) Backends(where string) []int {
	p.t.Helper()
	var pids []int
	for _, word := range strings.Fields(p.psql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'" +
		" AND application_name <> '" + ourName + "' AND (" + cmp.Or(where, "true") + ") ORDER BY backend_start")) {
		pid, err := strconv.Atoi(word)
		must(p.t, err)
		pids = append(pids, pid)
	}
	return pids
}

// KillBackend kills one of the Backends. PostgreSQL then considers its memory damaged: it ends all its
// other processes, with their clients' connections, and recovers. KillBackend returns when it serves
// again.
func (p *PostgresServer) KillBackend(where string) {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := servers.ErrNoChild // also if one has ended meanwhile
		for _, pid := range p.Backends(where) {
			if err = p.run.KillChild(pid); !errors.Is(err, servers.ErrNoChild) {
				break
			}
		}
		if !errors.Is(err, servers.ErrNoChild) || time.Now().After(end) {
			must(p.t, err)
			p.await()
			return
		}
	}
}
