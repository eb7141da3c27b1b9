package testenv

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

const postgresPackages = "PostgreSQL (Debian, Ubuntu: apt-get install postgresql)"

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
	initdb := needs(t, "initdb", postgresPackages, "/usr/lib/postgresql/*/bin")
	// All programs must have one version, and so come from one folder; PATH may link to only one of
	// them.
	initdb, err := filepath.EvalSymlinks(initdb)
	must(t, err)
	a := newAccount(t, "postgres", "postgres")
	p := &PostgresServer{server{Addr: freeAddr(t), t: t, what: "the PostgreSQL server", data: a.Path("data"), account: &a,
		run: servers.Server{Quit: syscall.SIGINT, Forks: true}}}
	p.ready = func() error { return welcomes("unix", p.socket(), "postgres") }
	data := a.Path("data")
	a.installed(t, []string{initdb, "--pgdata=" + data}, []string{"--auth=trust", "--username=postgres", "--no-sync",
		"--no-instructions", "--encoding=UTF8", "--locale=C", "--wal-segsize=1"})
	host, port, _ := net.SplitHostPort(p.Addr)
	// A commit is written at once, so that Kill loses nothing.
	all := []string{"listen_addresses=" + host, "port=" + port, "unix_socket_directories=" + a.Dir,
		"fsync=off", "shared_buffers=32MB", "max_connections=200",
		// In the data folder, which is removed when the test ends.
		"dynamic_shared_memory_type=mmap"}
	if secure {
		p.TLS = NewCerts(t)
		c := a.certs(t, p.TLS)
		all = append(all, "ssl=on", "ssl_ca_file="+c.CA, "ssl_cert_file="+c.Cert, "ssl_key_file="+c.Key)
		a.write(t, filepath.Join("data", "pg_hba.conf"),
			"local all all trust\nhostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n")
	}
	p.argv = []string{filepath.Join(filepath.Dir(initdb), "postgres"), "-D", data}
	for _, s := range append(all, settings...) {
		p.argv = append(p.argv, "-c", s)
	}
	t.Cleanup(func() { p.Kill(); p.unshare() })
	p.Start()
	return p
}

// unshare removes the shared memory that a killed server has left. A system has room for some
// thousand such segments; without room no PostgreSQL starts.
func (p *PostgresServer) unshare() {
	b, err := os.ReadFile(filepath.Join(p.data, "postmaster.pid"))
	if err != nil { // it ended normally
		return
	}
	const line = 6 // a key, and the segment's number
	if lines := strings.Split(string(b), "\n"); len(lines) > line {
		if key := strings.Fields(lines[line]); len(key) == 2 {
			// It may be gone, or the system lacks the program.
			_ = exec.Command("ipcrm", "--shmem-id", key[1]).Run()
		}
	}
}

func (p *PostgresServer) socket() string {
	_, port, _ := net.SplitHostPort(p.Addr)
	return p.account.Path(".s.PGSQL." + port)
}

// welcomes returns nil if a server with PostgreSQL's protocol would admit a client. The server has
// ended that client's session when welcomes returns.
func welcomes(network, addr, database string) error {
	const version = 3 << 16
	text := "user\x00postgres\x00database\x00" + database + "\x00\x00"
	hello := binary.BigEndian.AppendUint32(nil, uint32(8+len(text)))
	hello = binary.BigEndian.AppendUint32(hello, version)
	hello = append(hello, text...)
	c, err := net.Dial(network, addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return exchange(c, hello, func(r io.Reader) error {
		var kind [1]byte
		if _, err := io.ReadFull(r, kind[:]); err != nil {
			return err
		}
		if kind[0] != 'R' { // an 'E' is an error: the server is starting
			reply, err := io.ReadAll(r)
			return cmp.Or(err, fmt.Errorf("%q", append(kind[:], reply...)))
		}
		if _, err := c.Write([]byte{'X', 0, 0, 0, 4}); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, r) // the server closes the connection
		return err
	})
}

// exchange sends the client's first message, if any, and reads the answer.
func exchange(c net.Conn, first []byte, read func(io.Reader) error) error {
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write(first); err != nil {
		return err
	}
	return read(c)
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

// KillBackend kills one process of this server. PostgreSQL then considers its memory damaged: it
// ends all its other processes, with their clients' connections, and recovers. KillBackend returns
// when it serves again.
func (p *PostgresServer) KillBackend(pid int) {
	p.t.Helper()
	must(p.t, p.run.KillChild(pid))
	p.await()
}
