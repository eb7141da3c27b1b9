package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

func TestMain(m *testing.M) {
	// A client of a Cluster is slow by default to close connections and to look for changes.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient).redirectOrNew.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
	)
}

const (
	// long is a lease that does not expire during a test, however slow the machine is.
	long = time.Minute

	// soon bounds what a working program does at once. It is less than long, so what has happened
	// by then did not wait for a lease to expire.
	soon = 30 * time.Second

	// attempt is the state of one of several attempts.
	attempt = 5 * time.Second
)

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func exclusive(name string) *driver.Request {
	return &driver.Request{ID: newID(), Name: name, Mode: driver.Exclusive, N: 1, Wait: true}
}

func acquire(t testing.TB, s driver.Session, r *driver.Request) driver.Reply {
	t.Helper()
	reply, err := s.Acquire(within(t, soon), r)
	if err != nil {
		t.Fatalf("Acquire(%q): %v", r.Name, err)
	}
	return reply
}

func granted(t testing.TB, s driver.Session, r *driver.Request) driver.Hold {
	t.Helper()
	reply := acquire(t, s, r)
	if reply.Token == 0 {
		t.Fatalf("Acquire(%q) was not granted: %+v", r.Name, reply)
	}
	return driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}
}

func woken(t testing.TB, r driver.Reply) uint64 {
	t.Helper()
	timer := time.NewTimer(soon)
	defer timer.Stop()
	select {
	case token := <-r.Wake:
		return token
	case <-timer.C:
		t.Fatalf("not woken in %v", soon)
		return 0
	}
}

// session opens a session at a server that answers, however slow it is.
func session(t testing.TB, url string, ttl time.Duration) (driver.Session, *redislock.Backend) {
	t.Helper()
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	b := redislock.New(dialURL(t, url+sep+"dial-timeout=30s&read-timeout=30s"), nil)
	return openSession(t, b, ttl), b
}

// exercise takes, contends for, hands over and releases a lock.
func exercise(t *testing.T, url string) {
	t.Helper()
	a, b := session(t, url, long)
	c, _ := session(t, url, long)
	name := newID()
	h := granted(t, a, exclusive(name))
	r := exclusive(name)
	reply := acquire(t, c, r)
	ctx := within(t, soon)
	if err := a.Release(ctx, h, 0); err != nil {
		t.Fatal(err)
	}
	token := woken(t, reply)
	if token <= h.Token {
		t.Fatalf("token %d after %d", token, h.Token)
	}
	if rec, err := b.Inspect(ctx, name); err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != token {
		t.Fatalf("Inspect: %+v, %v", rec, err)
	}
	if err := c.Release(ctx, driver.Hold{Name: name, ID: r.ID, Token: token}, 0); err != nil {
		t.Fatal(err)
	}
}

func TestTransports(t *testing.T) {
	t.Parallel()
	t.Run("unix", func(t *testing.T) {
		exercise(t, "unix://"+testenv.Redis(t).Socket+"?db=3")
	})
	t.Run("database", func(t *testing.T) {
		exercise(t, testenv.Redis(t).URL()+"/7")
	})
	t.Run("tls", func(t *testing.T) {
		server := testenv.RedisTLS(t)
		exercise(t, server.URL())
		for what, url := range map[string]string{
			"an authority that is not trusted": "rediss://" + server.Addr + "?cert=" + server.TLS.Cert + "&key=" +
				server.TLS.Key,
			"no client certificate": "rediss://" + server.Addr + "?ca=" + server.TLS.CA,
			"another server name":   server.URL() + "&servername=other.example",
		} {
			err := dialed(url)
			// In TLS 1.3 the server refuses a client only after the handshake, and a reset of the
			// connection may overtake its reason.
			late := strings.HasPrefix(what, "no client") && errors.Is(err, driver.ErrUnavailable)
			if !errors.Is(err, driver.ErrRefused) && !late {
				t.Errorf("%s: %v; want ErrRefused", what, err)
			}
		}
	})
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	const canary = "c4n4ry"
	server := testenv.RedisACL(t, []string{strings.ReplaceAll(aclRule, ">secret", ">"+canary),
		"user weak on >" + canary + " ~hf:* &* +@connection"})
	exercise(t, "redis://holdfast:"+canary+"@"+server.Addr)
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrRefused) {
			t.Errorf("%s: %v; want ErrRefused", what, err)
		}
		if err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the error shows the password: %v", what, err)
		}
	}
	refused("wrong password", dialed("redis://holdfast:"+canary+"x@"+server.Addr))
	refused("unknown user", dialed("redis://nobody:"+canary+"@"+server.Addr))

	weak := redislock.New(dialURL(t, "redis://weak:"+canary+"@"+server.Addr), nil)
	defer func() { _ = weak.Close() }()
	_, err := weak.Inspect(within(t, soon), "x")
	refused("a user that may run no scripts", err)

	// The rule allows the package's work and nothing else.
	conn := dialURL(t, "redis://holdfast:"+canary+"@"+server.Addr)
	defer func() { _ = conn.Close() }()
	for _, s := range []struct {
		text string
		key  string
	}{
		{"return redis.call('FLUSHALL')", "hf:x"},
		{"return redis.call('KEYS', '*')", "hf:x"},
		{"return redis.call('CONFIG', 'GET', '*')", "hf:x"},
		{"return redis.call('GET', KEYS[1])", "other:x"},
		{"return redis.call('SET', 'other:x', 1)", "hf:x"},
		{"return redis.call('PUBLISH', 'other', 1)", "hf:x"},
	} {
		_, err := conn.Run(within(t, soon), &redislock.Script{Text: s.text, SHA1: strings.Repeat("0", 40)}, []string{s.key},
			nil)
		refused(s.text, err)
	}
}

func TestNoScript(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	s, b := session(t, server.URL(), long)
	var holds []driver.Hold
	for i := range 300 { // two batches
		if i%100 == 0 {
			server.Do("SCRIPT FLUSH")
		}
		holds = append(holds, granted(t, s, exclusive(fmt.Sprint("n", i))))
	}
	server.Do("SCRIPT FLUSH")
	if changes, err := s.Renew(within(t, soon), holds); err != nil || len(changes) != 0 {
		t.Fatalf("Renew: %v, %v", changes, err)
	}
	server.Do("SCRIPT FLUSH")
	if list, err := b.List(within(t, soon), "n", "", 1000); err != nil || len(list) != 300 {
		t.Fatalf("List: %d, %v", len(list), err)
	}
	server.Do("SCRIPT FLUSH")
	if err := s.Release(within(t, soon), holds[0], 0); err != nil {
		t.Fatal(err)
	}
}

// unanswered asks a frozen server for a grant, and returns that request. The outcome must be open. A short time
// limit may be over before the request is sent: then nothing was done, and a longer one follows.
func unanswered(t testing.TB, s driver.Session, name string) *driver.Request {
	t.Helper()
	for limit := 100 * time.Millisecond; ; limit *= 4 {
		r := exclusive(name)
		reply, err := s.Acquire(within(t, limit), r)
		if errors.Is(err, driver.ErrUncertain) {
			return r
		}
		if !errors.Is(err, driver.ErrUnavailable) || limit > 5*time.Second {
			t.Fatalf("a frozen server: %+v, %v; want ErrUncertain", reply, err)
		}
	}
}

func TestOutages(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	s, b := session(t, server.URL(), long)
	server.Pause()
	start := time.Now()
	unanswered(t, s, "x")
	if d := time.Since(start); d > soon {
		t.Errorf("a frozen server held up Acquire for %v", d)
	}
	start = time.Now()
	if _, err := rueidisconn.Dial(server.URL()); !errors.Is(err, driver.ErrUnavailable) &&
		!errors.Is(err, driver.ErrUncertain) {
		t.Errorf("Dial to a frozen server: %v", err)
	}
	if d := time.Since(start); d > soon {
		t.Errorf("a frozen server held up Dial for %v", d)
	}
	server.Continue()
	server.Kill()
	for end := time.Now().Add(soon); ; { // the first call may find the broken connection
		_, err := b.Inspect(within(t, soon), "x")
		if errors.Is(err, driver.ErrUnavailable) {
			break
		}
		if err == nil || time.Now().After(end) {
			t.Fatalf("a server that is down: %v; want ErrUnavailable", err)
		}
	}
	if _, err := rueidisconn.Dial(server.URL()); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Dial to a server that is down: %v; want ErrUnavailable", err)
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	s, _ := session(t, server.URL(), long)
	h := granted(t, s, exclusive("held"))
	server.Do("CONFIG SET maxmemory 1")
	if _, err := s.Acquire(within(t, soon), exclusive("x")); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("out of memory: %v; want ErrRefused", err)
	}
	server.Do("CONFIG SET maxmemory 0")
	if err := s.Release(within(t, soon), h, 0); err != nil {
		t.Error(err)
	}
	server.Do("REPLICAOF 127.0.0.1 1")
	if _, err := s.Acquire(within(t, soon), exclusive("x")); !errors.Is(err, driver.ErrRefused) &&
		!errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a replica: %v; want ErrRefused", err)
	}
	server.Do("REPLICAOF NO ONE")
}

// TestRule: the tests run under the documented rule.
func TestRule(t *testing.T) {
	doc, err := os.ReadFile("../../redislock/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(doc), "//", "")), " ")
	for _, rule := range []string{aclRule, clusterRule, watcherRule} {
		_, words, _ := strings.Cut(rule, " reset")
		if !strings.Contains(text, "reset"+words) {
			t.Errorf("the documented rule is another than the one tested: reset%s", words)
		}
	}
}
