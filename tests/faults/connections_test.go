package faults

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// TestNoConnectionsLeft: a server has as many clients as it accepts. Connected clients continue to
// renew, wait and hand over. A new client gets ErrUnavailable, and is accepted when there is room.
func TestNoConnectionsLeft(t *testing.T) {
	t.Parallel()
	for what, start := range map[string]func(t *testing.T) (s *site, take func() (io.Closer, bool)){
		"Redis": func(t *testing.T) (*site, func() (io.Closer, bool)) {
			r := testenv.Redis(t, "--maxclients", "30")
			return redisAt(t, r), func() (io.Closer, bool) {
				return tryConnect(t, r.Addr, "PING\r\n", func(reply string) bool { return strings.HasPrefix(reply, "+PONG") })
			}
		},
		"ZooKeeper": func(t *testing.T) (*site, func() (io.Closer, bool)) {
			z := testenv.ZooKeeper(t, longSessions, "maxClientCnxns=12", "-Dzookeeper.nio.sessionlessCnxnTimeout=600000")
			return zooKeeperAt(t, z), func() (io.Closer, bool) {
				// It closes the connection of a client that it does not accept.
				return tryConnect(t, z.Addr, "", func(reply string) bool { return reply == silence })
			}
		},
		"MariaDB": func(t *testing.T) (*site, func() (io.Closer, bool)) {
			m := testenv.MariaDB(t, "--max-connections=20")
			return mariaDBAt(t, m), login(t, "mysql", m.DSN("root", ""))
		},
		"PostgreSQL": func(t *testing.T) (*site, func() (io.Closer, bool)) {
			p := testenv.Postgres(t, "max_connections=20", "max_wal_senders=0")
			return postgresAt(t, p), login(t, "pgx", p.DSN("postgres"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, take := start(t)
			c := s.newFixture()
			newcomer := s.backend()
			var all []io.Closer
			for {
				conn, ok := take()
				if !ok {
					break
				}
				if all = append(all, conn); len(all) > 100 {
					t.Fatal("the server accepts any number of clients")
				}
			}
			t.Logf("the server accepted %d more connections", len(all))
			since := time.Now()
			open := func(d time.Duration) error {
				ctx, cancel := context.WithTimeout(context.Background(), d)
				defer cancel()
				n, err := newcomer.Open(ctx, driver.SessionConfig{ID: "newcomer", TTL: ttl})
				if err == nil {
					err = n.Close(limited(t))
					if err != nil {
						t.Errorf("Close: %v", err)
					}
				}
				return err
			}
			if err := open(ttl); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("Open: %v; want ErrUnavailable", err)
			} else {
				t.Logf("Open: %v", err)
			}
			c.staysTrusted(since.Add(watchTime)) // by renewals
			c.handOver()
			c.release(s.lock(c.holder, name))
			for _, conn := range all {
				_ = conn.Close()
			}
			since = time.Now()
			until(t, "a new client is accepted", func() bool { return open(limit) == nil })
			t.Logf("a new client was accepted after %v", time.Since(since))
		})
	}
}

// silence represents a missing reply.
const silence = "(silence)"

// tryConnect connects, sends text, and finds out from the reply whether the server accepts clients.
func tryConnect(t *testing.T, addr, text string, in func(reply string) bool) (io.Closer, bool) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, false
	}
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Logf("%s: %v", addr, err)
	}
	wait := 200 * time.Millisecond
	if text != "" {
		wait = limit
	}
	if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 200)
	n, err := conn.Read(buf)
	reply := string(buf[:n])
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		reply = silence
	}
	if !in(reply) {
		_ = conn.Close()
		return nil, false
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, true
}

// login opens connections to a database, as clients do.
func login(t *testing.T, name, dsn string) func() (io.Closer, bool) {
	t.Helper()
	db := pool(t, name, dsn)
	db.SetMaxIdleConns(-1) // a closed connection is closed at the server, too
	return func() (io.Closer, bool) {
		conn, err := db.Conn(context.Background())
		return conn, err == nil
	}
}
