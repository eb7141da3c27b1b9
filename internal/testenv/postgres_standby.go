package testenv

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/internal/servers/postgres"
)

// PostgresStandby starts a server that follows primary. settings override the defaults. Its
// application name at the primary is "standby". SELECT pg_promote() makes it the primary.
func PostgresStandby(t testing.TB, primary *PostgresServer, settings ...string) *PostgresServer {
	t.Helper()
	programs := filepath.Dir(primary.argv[0])
	a := newAccount(t, "postgres", postgres.User)
	p := &PostgresServer{server{Addr: FreeAddr(t), t: t, what: "the PostgreSQL standby", data: a.Path("data"), account: &a,
		run: servers.Server{Quit: syscall.SIGINT, Forks: true}}}
	p.ready = func() error { return postgres.Welcomes("unix", p.socket(), "postgres") }
	_, port, _ := net.SplitHostPort(primary.Addr)
	a.finish(t, filepath.Join(programs, "pg_basebackup"), "--pgdata="+a.Path("data"), "--write-recovery-conf",
		"--checkpoint=fast", "--no-sync", "--dbname=host="+primary.account.Dir+" port="+port+
			" user=postgres application_name=standby")
	host, port, _ := net.SplitHostPort(p.Addr)
	p.argv = []string{primary.argv[0], "-D", a.Path("data")}
	p.argv = append(p.argv, postgres.Settings(append([]string{"listen_addresses=" + host, "port=" + port,
		"unix_socket_directories=" + a.Dir, "fsync=off", "shared_buffers=32MB", "max_connections=200",
		"dynamic_shared_memory_type=mmap"}, settings...)...)...)
	t.Cleanup(p.Kill)
	p.Start()
	return p
}
