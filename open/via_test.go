//go:build linux

package open

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// checkVia takes a lock at the store of rawURL and waits for it with another request. It expects
// that the dialer makes every connection to addrs, and that its calls include asked.
func checkVia(t *testing.T, rawURL string, addrs []string, asked ...string) {
	t.Helper()
	w := newTestDialer()
	st, err := Via(t.Context(), rawURL, w.dial)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := holdfast.New(ctx, st, &holdfast.Config{TTL: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Mutex("a").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		l, err := c.Mutex("a").Lock(ctx)
		if err == nil {
			err = l.Release()
		}
		second <- err
	}()
	for waiting := 0; waiting == 0; time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-second:
			t.Fatalf("the second holder: %v", err)
		default:
		}
		r, err := c.Inspect(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		waiting = r.Waiting
	}
	if err := l.Extend(time.Hour); err != nil { // renews the lease
		t.Error(err)
	}
	// The dialer may not have returned yet.
	others := w.others(t, portsOf(addrs...))
	for began := time.Now(); len(others) > 0 && time.Since(began) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
		others = w.strange(others)
	}
	if len(others) > 0 {
		t.Errorf("connections past the dialer: %q", others)
	}
	if err := errors.Join(l.Release(), <-second); err != nil {
		t.Error(err)
	}
	if st.Polling() != "" {
		t.Errorf("polling: %s", st.Polling())
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, word := range asked {
		if w.asked[word] == 0 {
			t.Errorf("the dialer was not asked for %s, but %v", word, w.asked)
		}
	}
}

// checkRefused expects that a store is unavailable soon if the dialer refuses its connections.
func checkRefused(t *testing.T, rawURL string, refuse func(string) bool) {
	t.Helper()
	w := newTestDialer()
	if w.refuse = refuse; refuse == nil {
		w.refuse = func(string) bool { return true }
	}
	began := time.Now()
	err := useOnce(t.Context(), rawURL, w)
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("refused: %v; want ErrUnavailable", err)
	}
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("refused: after %v", took)
	}
	w.mu.Lock() // a dial may have been given up, and still be under way
	defer w.mu.Unlock()
	if len(w.asked) == 0 {
		t.Error("the dialer was not asked")
	}
}

// useOnce opens the store and takes a lock.
func useOnce(ctx context.Context, rawURL string, w *testDialer) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	st, err := Via(ctx, rawURL, w.dial)
	if err != nil {
		return err
	}
	c, err := holdfast.New(ctx, st, &holdfast.Config{TTL: 2 * time.Second})
	if err != nil {
		return errors.Join(err, st.Close())
	}
	l, err := c.Mutex("b").Lock(ctx)
	if err == nil {
		err = l.Release()
	}
	return errors.Join(err, c.Close(ctx), st.Close())
}

func elsewhere(rawURL string) string {
	return strings.ReplaceAll(rawURL, "127.0.0.1", nowhere)
}

func TestViaRedis(t *testing.T) {
	r := testenv.Redis(t)
	_, port, _ := net.SplitHostPort(r.Addr)
	checkVia(t, elsewhere(r.URL())+"/3", []string{r.Addr}, "tcp "+nowhere+":"+port)
	checkRefused(t, r.URL(), nil)
}

func TestViaRedisSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "via") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "r.sock")
	r := testenv.Redis(t, "--unixsocket", path)
	checkVia(t, "redis+unix://"+path+"?db=1", nil, "unix "+path)
	checkRefused(t, "unix://"+path, nil)
	if others := newTestDialer().others(t, nil); others != nil {
		t.Errorf("to %s: %q", r.Addr, others)
	}
}

func TestViaRedisTLS(t *testing.T) {
	r := testenv.RedisTLS(t)
	_, port, _ := net.SplitHostPort(r.Addr)
	checkVia(t, strings.Replace(r.URL(), "127.0.0.1", "localhost", 1), []string{r.Addr}, "tcp localhost:"+port)
	checkVia(t, elsewhere(r.URL())+"&servername=localhost", []string{r.Addr}, "tcp "+nowhere+":"+port)
	// The client checks the certificate against the name in the URL, wherever the dialer connects.
	if err := useOnce(t.Context(), elsewhere(r.URL()), newTestDialer()); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("a certificate for another name: %v; want ErrRefused", err)
	}
	checkRefused(t, r.URL(), nil)
}

func TestViaSentinel(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := testenv.RedisSentinel(t, testenv.SentinelSetup{TLS: secure})
		var servers []string
		for _, r := range s.Servers {
			servers = append(servers, r.Addr)
		}
		checkVia(t, s.URL(""), append(s.Addrs(), servers...), "tcp "+servers[0])
		checkRefused(t, s.URL(""), nil)
		checkRefused(t, s.URL(""), func(addr string) bool { return slices.Contains(servers, addr) })
	}
}

func TestViaCluster(t *testing.T) {
	for _, secure := range []bool{false, true} {
		c := testenv.RedisCluster(t, testenv.ClusterSetup{NoReplicas: true, TLS: secure})
		first := c.Addrs()[0]
		only := strings.Replace(c.URL(""), strings.Join(c.Addrs(), ","), first, 1)
		checkVia(t, only, c.Addrs(), "tcp "+first)
		checkRefused(t, only, nil)
	}
}

func TestViaQuorum(t *testing.T) {
	var addrs, asked []string
	for range 3 {
		r := testenv.Redis(t)
		addrs, asked = append(addrs, r.Addr), append(asked, "tcp "+r.Addr)
	}
	rawURL := "redis+quorum://" + strings.Join(addrs, ",")
	if _, err := Init(t.Context(), rawURL); err != nil {
		t.Fatal(err)
	}
	checkVia(t, rawURL, addrs, asked...) // a quorum knows its servers by their names
	checkRefused(t, rawURL, nil)
	checkRefused(t, rawURL, func(addr string) bool { return addr != addrs[0] })
}

func TestViaZooKeeper(t *testing.T) {
	z := testenv.ZooKeeper(t, "maxSessionTimeout=40000")
	_, port, _ := net.SplitHostPort(z.Addr)
	checkVia(t, elsewhere(z.URL()), []string{z.Addr}, "tcp "+nowhere+":"+port)
	checkRefused(t, z.URL(), nil)
	s := testenv.ZooKeeperTLS(t, "maxSessionTimeout=40000")
	_, port, _ = net.SplitHostPort(s.Addr)
	checkVia(t, elsewhere(s.URL())+"&servername=localhost", []string{s.Addr}, "tcp "+nowhere+":"+port)
	checkRefused(t, s.URL(), nil)
}

func TestViaMySQL(t *testing.T) {
	m := testenv.MariaDB(t)
	rawURL := "mysql://root@" + m.Addr + "/test"
	if _, err := Init(t.Context(), rawURL); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(m.Addr)
	checkVia(t, elsewhere(rawURL), []string{m.Addr}, "tcp "+nowhere+":"+port)
	checkRefused(t, rawURL, nil)
	socket := "mysql://root@/test?socket=" + url.QueryEscape(m.Socket)
	checkVia(t, socket, nil, "unix "+m.Socket)
	checkRefused(t, socket, nil)
}

func TestViaMySQLTLS(t *testing.T) {
	m := testenv.MariaDBTLS(t)
	rawURL := "mysql://root@" + m.Addr + "/test?tls=true&servername=localhost&ca=" + m.TLS.CA + "&cert=" + m.TLS.Cert +
		"&key=" + m.TLS.Key
	if _, err := Init(t.Context(), rawURL); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(m.Addr)
	checkVia(t, elsewhere(rawURL), []string{m.Addr}, "tcp "+nowhere+":"+port)
	if err := useOnce(t.Context(), strings.Replace(elsewhere(rawURL), "&servername=localhost", "", 1),
		newTestDialer()); err == nil {
		t.Error("a certificate for another name is taken")
	}
	checkRefused(t, rawURL, nil)
}

func TestViaPostgres(t *testing.T) {
	withoutLibpq(t)
	p := testenv.Postgres(t)
	if _, err := Init(t.Context(), p.DSN("postgres")); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(p.Addr)
	checkVia(t, elsewhere(p.DSN("postgres")), []string{p.Addr}, "tcp "+nowhere+":"+port)
	checkRefused(t, p.DSN("postgres"), nil)

	// The direct connection has a host name of its own here.
	direct := strings.Replace(p.DSN("postgres"), "127.0.0.1", "localhost", 1)
	both := elsewhere(p.DSN("postgres")) + "&listen=" + url.QueryEscape(direct)
	checkVia(t, both, []string{p.Addr}, "tcp "+nowhere+":"+port, "tcp localhost:"+port)
	checkRefused(t, both, nil)

	w := newTestDialer()
	w.refuse = func(string) bool { return true }
	err := useOnce(t.Context(), "postgres:///d?user=u&host=/nowhere&port=7", w)
	if !errors.Is(err, driver.ErrUnavailable) || w.asked["unix /nowhere/.s.PGSQL.7"] == 0 {
		t.Errorf("a socket: %v, asked for %v", err, w.asked)
	}
}

func TestViaPostgresTLS(t *testing.T) {
	withoutLibpq(t)
	p := testenv.PostgresTLS(t)
	named := strings.Replace(p.DSN("postgres"), "127.0.0.1", "localhost", 1)
	if _, err := Init(t.Context(), p.DSN("postgres")); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(p.Addr)
	checkVia(t, named, []string{p.Addr}, "tcp localhost:"+port)
	if err := useOnce(t.Context(), elsewhere(p.DSN("postgres")), newTestDialer()); err == nil {
		t.Error("a certificate for another name is taken")
	}
	checkRefused(t, p.DSN("postgres"), nil)
}

// Via opens stores without connections, and does not use the dialer.
func TestViaNothing(t *testing.T) {
	w := newTestDialer()
	w.refuse = func(string) bool { return true }
	for _, rawURL := range []string{"memory:", "sqlite:" + filepath.Join(t.TempDir(), "l.db")} {
		if err := useOnce(t.Context(), rawURL, w); err != nil || len(w.asked) != 0 {
			t.Errorf("%s: %v, asked for %v", rawURL, err, w.asked)
		}
	}
}
