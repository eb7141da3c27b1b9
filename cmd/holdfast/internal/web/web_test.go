package web

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

const secret = "correct horse battery staple"

func users(t *testing.T, text string) (*Users, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return ReadUsers(path)
}

func TestUsers(t *testing.T) {
	u, err := users(t, "# who may\n\nann:"+secret+"\nbob:another secret: with a colon\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		user, secret, bearer, want string
	}{
		{"ann", secret, "", "ann"}, {"bob", "another secret: with a colon", "", "bob"}, {"", "", secret, "ann"},
		{"bob", secret, "", ""}, {"ann", secret + " ", "", ""}, {"ann", "", "", ""}, {"", secret, "", ""},
		{"Ann", secret, "", ""}, {"", "", "x", ""}, {"", "", "", ""}, {"", "", "ann:" + secret, ""},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if c.user+c.secret != "" {
			r.SetBasicAuth(c.user, c.secret)
		}
		if c.bearer != "" {
			r.Header.Set("Authorization", "bearer "+c.bearer)
		}
		if got, ok := u.check(r); got != c.want || ok != (c.want != "") {
			t.Errorf("%+v: %q, %v", c, got, ok)
		}
	}
	for _, text := range []string{"", "# nobody\n", "ann\n", ":" + secret, "ann:short", "ann:",
		"ann:" + secret + "\nann:" + secret + "2", "ann:" + secret + "\nbob:" + secret,
		"ann:a secret that has a \u200b hidden character"} {
		if u, err := users(t, text); err == nil {
			t.Errorf("%q: %+v", text, u)
		}
	}
	path := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(path, []byte("ann:"+secret), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadUsers(path); err == nil || strings.Contains(err.Error(), secret) {
		t.Error(err)
	}
	one, err := OneUser(secret)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.SetBasicAuth("anything", secret)
	if name, ok := one.check(r); !ok || name == "" {
		t.Error("the owner of the token is nobody")
	}
	r.SetBasicAuth("anything", "")
	if _, ok := one.check(r); ok {
		t.Error("no secret passes")
	}
}

func TestGuard(t *testing.T) {
	u, err := users(t, "ann:"+secret)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/locks/", http.StripPrefix("/locks", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("user " + User(r)))
	})))
	g := &Guard{Users: u, Hosts: []string{"Locks.example.com"}, Next: mux}
	ask := func(path, host string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.Host = host
		for i := 0; i+1 < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		return w
	}
	auth := []string{"Authorization", "Bearer " + secret}
	for host, want := range map[string]int{"localhost": 200, "localhost:7420": 200, "127.0.0.1:1": 200,
		"[::1]:7420": 200, "[::1]": 200,
		"10.0.0.7": 200, "locks.example.com": 200, "LOCKS.example.com.:443": 200, "evil.example": 421, "": 421,
		"127.0.0.1.evil.example": 421,
		"localhost.evil.example": 421, "locks.example.com.evil.example": 421, "evil.example:7420": 421,
		"127.0.0.1:1:evil": 421} {
		if got := ask("/locks/", host, auth...).Code; got != want {
			t.Errorf("host %q: %d, want %d", host, got, want)
		}
	}
	// No path passes without a secret, whatever it looks like.
	for _, path := range []string{"/", "/locks", "/locks/", "/locks/static/style.css", "//locks/", "/locks/../x",
		"/%2e%2e/locks/", "/locks%2f",
		"/api/v1/openapi.json", "/favicon.ico"} {
		w := ask(path, "localhost")
		if w.Code != 401 || !strings.Contains(w.Header().Get("WWW-Authenticate"), "Basic") {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
	if w := ask("/locks/", "localhost", auth...); w.Body.String() != "user ann" {
		t.Error(w.Body)
	}
	for _, x := range []struct {
		site, mode string
		want       int
	}{{"cross-site", "no-cors", 403}, {"same-site", "cors", 403}, {"cross-site", "navigate", 200},
		{"same-origin", "cors", 200},
		{"none", "navigate", 200}} {
		if got := ask("/locks/", "localhost", append(auth, "Sec-Fetch-Site", x.site, "Sec-Fetch-Mode",
			x.mode)...).Code; got != x.want {
			t.Errorf("%+v: %d", x, got)
		}
	}
}

func TestLimit(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Limit(inner, 1)
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	for range 2 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first := <-accepted
	select {
	case <-accepted:
		t.Error("there are two connections")
	case <-time.After(50 * time.Millisecond):
	}
	for range 2 { // the second close gives no slot back
		_ = first.Close()
	}
	second := <-accepted
	defer second.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("Accept goes on after Close")
	}
	_ = l.Close()
}

// A body that does not come keeps no connection of somebody who may not even ask.
func TestSlowBody(t *testing.T) {
	u, err := users(t, "ann:"+secret)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		status, took := testenv.SlowBody(t, &Guard{Users: u, Next: http.NotFoundHandler()}, "POST / HTTP/1.1\r\n")
		if status != 401 || took > 11*time.Second {
			t.Errorf("%d after %v", status, took)
		}
	})
}
