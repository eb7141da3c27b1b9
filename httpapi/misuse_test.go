package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/httpapi"
)

// What is malformed gets an answer that says so, and changes nothing.
func TestMalformed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program) {
		number := 100 // a refusal spends it
		long := strings.Repeat("x", 600)
		for body, want := range map[string]string{
			``: "invalid", `{`: "invalid", `null`: "invalid", `[]`: "invalid", `"a"`: "invalid", `{} {}`: "invalid",
			`{"request":1}`:                                                         "invalid",
			`{"name":"a"}`:                                                          "invalid",
			`{"request":0,"name":"a"}`:                                              "invalid",
			`{"request":-1,"name":"a"}`:                                             "invalid",
			`{"request":1.5,"name":"a"}`:                                            "invalid",
			`{"request":"1","name":"a"}`:                                            "invalid",
			`{"request":9007199254740993,"name":"a"}`:                               "invalid",
			`{"request":1e400,"name":"a"}`:                                          "invalid",
			`{"request":1,"name":""}`:                                               "invalid",
			`{"request":1,"name":"` + long + `"}`:                                   "invalid",
			`{"request":1,"name":7}`:                                                "invalid",
			`{"request":1,"name":"\ud800"}`:                                         "invalid",
			`{"request":1,"name":"a\\\udc00b"}`:                                     "invalid",
			"{\"request\":1,\"name\":\"\xff\"}":                                     "invalid",
			`{"request":1,"name":"a","mode":"x"}`:                                   "invalid",
			`{"request":1,"name":"a","limit":1}`:                                    "invalid",
			`{"request":1,"name":"a","permits":-1}`:                                 "invalid",
			`{"request":1,"name":"a","poll_ms":-1}`:                                 "invalid",
			`{"request":1,"name":"a","wait":1}`:                                     "invalid",
			`{"request":1,"name":"a","ttl":1}`:                                      "invalid",
			`{"request":1,"name":"a","labels":{"":"x"}}`:                            "invalid",
			`{"request":1,"name":"a","labels":{"x":1}}`:                             "invalid",
			`{"request":1,"name":"a","labels":["x"]}`:                               "invalid",
			`{"request":1,"name":"a","labels":{"http-session":"x"}}`:                "invalid",
			`{"request":1,"name":"a","note":"` + strings.Repeat("x", 5000) + `"}`:   "invalid",
			`{"request":1,"name":"a","mode":"permits","permits":2,"limit":1}`:       "invalid",
			`{"request":1,"name":"a","mode":"permits","permits":1}`:                 "invalid", // no limit is set
			`{"request":1,"name":"a","note":"` + strings.Repeat("x", 70_000) + `"}`: "too_large",
			strings.Repeat(`[`, 60_000):                                             "invalid",
		} {
			number++
			body = strings.Replace(body, `"request":1,`, fmt.Sprintf(`"request":%d,`, number), 1)
			if a := p.call("acquire", body); a.Error.Code != want {
				t.Errorf("%.100s: %d %+v, want %s", body, a.status, a.Error, want)
			}
		}
		for rec, err := range c.Locks(t.Context(), "") {
			t.Error(rec, err)
		}
		for body, name := range map[string]string{
			`{"request":210,"name":"\ud83d\ude00"}`: "😀", `{"request":211,"name":"a\\ud800"}`: `a\ud800`,
			`{"request":212,"name":"\ufffd"}`: "\ufffd", `{"request":213,"name":"../%2e\u0000"}`: "../%2e\x00",
		} {
			p.call("acquire", body).is(t, 200, "")
			if held, _ := holders(t, c, name); held != 1 {
				t.Errorf("%q is free", name)
			}
		}
		p.call("cancel", J{"request": 0}).is(t, 400, "invalid")
		p.call("sessions", J{"client": long}).is(t, 400, "invalid")
		p.call("sessions/heartbeat", J{"leases": make([]string, 1001)}).is(t, 400, "invalid")
	})
}

func TestHeaders(t *testing.T) { synctest.Test(t, testHeaders) }

func testHeaders(t *testing.T) {
	c := client(t, &holdfast.Config{TTL: time.Second})
	s := httpapi.New(c, nil)
	for name, x := range map[string]struct {
		header, value string
		want          int
	}{
		"a form":            {"Content-Type", "application/x-www-form-urlencoded", 415},
		"plain text":        {"Content-Type", "text/plain", 415},
		"another site":      {"Sec-Fetch-Site", "cross-site", 403},
		"a site next to it": {"Sec-Fetch-Site", "same-site", 403},
		"another origin":    {"Origin", "https://evil.example", 403},
		"this site":         {"Origin", "http://example.com", 201},
		"no browser":        {"User-Agent", "curl", 201},
	} {
		r := httptest.NewRequest("POST", "/v1/sessions", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
		r.Header.Set(x.header, x.value)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != x.want {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Drain(ctx); err == nil {
		t.Error("a server with two sessions has drained at once")
	}
	for ended := time.Now().Add(2 * ttl); s.Drain(ctx) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(ended) {
			t.Fatal("the sessions did not end")
		}
	}
}

// A cancelled number stays cancelled, also if the cancel overtakes the request.
func TestCancel(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program) {
		p.call("cancel", J{"request": 1}).is(t, 200, "")
		p.call("acquire", J{"request": 1, "name": "a"}).is(t, 410, "cancelled")
		a := p.take(2, "a")
		q := p.other()
		waits := make(chan *answer, 1)
		go func() { waits <- q.call("acquire", J{"request": 1, "name": "a"}) }()
		synctest.Wait()
		q.call("cancel", J{"request": 1}).is(t, 200, "")
		(<-waits).is(t, 410, "cancelled")
		if held, n := holders(t, c, "a"); held != 1 || n != 0 {
			t.Errorf("%d hold, %d wait", held, n)
		}
		p.call("cancel", J{"request": 2}).is(t, 200, "")
		p.call("cancel", J{"request": 2}).is(t, 200, "")
		p.call("release", J{"lease": a.Lease}).is(t, 200, "")
		p.call("acquire", J{"request": 2, "name": "a"}).is(t, 410, "cancelled")
		if held, _ := holders(t, c, "a"); held != 0 {
			t.Error("it is held")
		}
		// Refusals are final as well: a copy that comes late takes nothing.
		b := p.take(3, "b")
		q.call("acquire", J{"request": 2, "name": "b", "wait": false}).is(t, 409, "busy")
		p.call("release", J{"lease": b.Lease}).is(t, 200, "")
		q.call("acquire", J{"request": 2, "name": "b", "wait": false}).is(t, 409, "busy")
		p.call("acquire", J{"request": 4, "name": "c", "mode": "permits", "limit": 2}).is(t, 200, "")
		p.call("acquire", J{"request": 5, "name": "c", "mode": "permits", "limit": 3}).is(t, 409, "kind")
		p.call("acquire", J{"request": 6, "name": "d", "mode": "shared"}).is(t, 200, "")
		q.call("acquire", J{"request": 6, "name": "d", "mode": "shared", "wait": false}).is(t, 200, "")
	})
}

// A session remembers a bounded number of requests, and takes no copy of a forgotten one.
func TestForgotten(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program) {
		kept := p.take(1, "kept")
		for n := 2; n < 1500; n++ {
			a := p.take(n, "a")
			p.call("release", J{"lease": a.Lease}).is(t, 200, "")
		}
		p.call("acquire", J{"request": 2, "name": "a"}).is(t, 409, "request_too_old")
		p.call("acquire", J{"request": 1499, "name": "a"}).is(t, 410, "released")
		p.call("cancel", J{"request": 2}).is(t, 200, "")
		if again := p.take(1, "kept"); again.Lease != kept.Lease {
			t.Error("a live request was forgotten")
		}
	})
}

func TestLimits(t *testing.T) {
	inBubble(t, &httpapi.Config{MaxSessions: 3, MaxRequests: 2, MaxWaits: 1}, func(t *testing.T, c *holdfast.Client,
		s *httpapi.Server, p *program) {
		q := p.other()
		p.other()
		a := p.call("sessions", J{})
		if a.is(t, 503, "too_many_sessions"); a.header.Get("Retry-After") == "" {
			t.Error(a.header)
		}
		first := p.take(1, "a")
		p.take(2, "b")
		p.call("acquire", J{"request": 3, "name": "c"}).is(t, 429, "too_many_requests")
		p.call("release", J{"lease": first.Lease}).is(t, 200, "")
		p.take(4, "c")
		waits := make(chan *answer, 1)
		go func() { waits <- q.call("acquire", J{"request": 1, "name": "b", "poll_ms": 1000}) }()
		synctest.Wait()
		q.call("acquire", J{"request": 2, "name": "c"}).is(t, 503, "too_many_waits")
		(<-waits).is(t, 202, "")
		q.call("sessions/end", J{}).is(t, 200, "")
		if _, n := holders(t, c, "b"); n != 0 {
			t.Error("a place has outlived its session")
		}
		if x := p.call("sessions/end", J{}); x.Released != 2.0 {
			t.Errorf("%+v", x)
		}
		p.call("sessions/end", J{}).is(t, 410, "no_such_session")
	})
}

// Thousands of sessions that vanish leave nothing.
func TestManySessions(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program) {
		const n = 3000
		for i := range n {
			p.other().take(1, fmt.Sprint("name/", i))
		}
		count := func() (n int) {
			for _, err := range c.Locks(t.Context(), "") {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			return n
		}
		if got := count(); got != n {
			t.Fatalf("%d names are in use", got)
		}
		time.Sleep(ttl + ttl/50)
		if got := count(); got != 0 {
			t.Errorf("%d names are in use after the end of the sessions", got)
		}
	})
}

// A server that drains gives no more trust, lets programs release, and frees nothing that is
// trusted.
func TestDrain(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program) {
		a, b := p.take(1, "a"), p.take(2, "b")
		began := time.Now()
		q := p.other()
		waits := make(chan *answer, 1)
		go func() { waits <- q.call("acquire", J{"request": 1, "name": "a"}) }()
		synctest.Wait()
		drained := make(chan error, 1)
		go func() { drained <- s.Drain(t.Context()) }()
		(<-waits).is(t, 503, "draining")
		q.call("acquire", J{"request": 2, "name": "z"}).is(t, 503, "draining")
		p.call("sessions", J{}).is(t, 503, "draining")
		time.Sleep(50 * time.Millisecond)
		if _, n := holders(t, c, "a"); n != 0 {
			t.Error("there is a waiter")
		}
		time.Sleep(ttl / 2)
		x := p.call("sessions/heartbeat", J{"leases": []string{a.Lease, b.Lease}})
		if x.Leases[0].Trusted > (ttl*4/10).Milliseconds() || x.Leases[0].Trusted == 0 {
			t.Errorf("%+v", x)
		}
		p.call("release", J{"lease": a.Lease}).is(t, 200, "")
		time.Sleep(ttl*9/10 - time.Since(began))
		if held, _ := holders(t, c, "b"); held != 1 {
			t.Error("a lease was freed that may be trusted")
		}
		if err := <-drained; err != nil || time.Since(began) > ttl+time.Second {
			t.Error(err, time.Since(began))
		}
	})
}

// On real connections, with programs that vanish at any moment: never two holders, and in the end
// none.
func TestStress(t *testing.T) {
	c := client(t, &holdfast.Config{TTL: time.Minute}) // no session ends by itself, on any machine
	api, doc := httpapi.New(c, nil), readDocument(t)
	server := httptest.NewServer(api)
	defer server.Close()
	var mu sync.Mutex
	holder, last, grants := map[string]int{}, map[string]uint64{}, 0
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			p := (&program{t: t, api: proxy(server), doc: doc, late: true}).begin()
			if p == nil {
				return
			}
			defer p.call("sessions/end", J{})
			const rounds = 15
			for n := 1; n <= rounds; n++ {
				name := fmt.Sprint("name", rand.N(2))
				ctx, cancel := context.WithCancel(context.Background())
				if rand.N(3) == 0 {
					time.AfterFunc(rand.N(3*time.Millisecond), cancel)
				}
				a := p.do(ctx, "acquire", J{"request": n, "name": name})
				cancel()
				if a.status == 0 || a.status == 202 {
					if rand.N(2) == 0 { // the number is abandoned
						if n < rounds {
							// The answer may have reported a grant: others would wait for it for long.
							p.call("cancel", J{"request": n})
						}
						continue
					}
					a = p.call("acquire", J{"request": n, "name": name})
				}
				if a.status == 202 {
					p.call("cancel", J{"request": n})
					continue
				}
				if a.status != 200 {
					t.Errorf("%+v", a)
					continue
				}
				token, _ := strconv.ParseUint(a.Token, 10, 64)
				mu.Lock()
				if other := holder[name]; other != 0 || token <= last[name] {
					t.Errorf("%d has %s with token %d, and %d with %d", i+1, name, token, other, last[name])
				}
				holder[name], last[name] = i+1, token
				grants++
				mu.Unlock()
				mu.Lock()
				holder[name] = 0
				mu.Unlock()
				p.call("release", J{"lease": a.Lease}).is(t, 200, "")
			}
		})
	}
	all.Wait()
	if grants < 50 {
		t.Errorf("only %d grants", grants)
	}
	for name := range last {
		// The end of a session does not wait for the end of a wait that was abandoned.
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			held, waits := holders(t, c, name)
			if held == 0 && waits == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d hold, %d wait", name, held, waits)
			}
		}
	}
	if err := api.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// proxy is a handler that asks a server over a connection of its own, which the end of the request's
// context closes.
func proxy(server *httptest.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := http.NewRequestWithContext(r.Context(), r.Method, server.URL+r.URL.Path, r.Body)
		if err != nil {
			panic(err)
		}
		out.Header = r.Header
		tr := &http.Transport{DisableKeepAlives: true}
		answer, err := tr.RoundTrip(out)
		if err != nil {
			return
		}
		defer answer.Body.Close()
		w.WriteHeader(answer.StatusCode)
		_, _ = bufio.NewReader(answer.Body).WriteTo(w)
	})
}

// A body that does not arrive, and an answer that nobody reads, keep no lock.
func TestSlowPrograms(t *testing.T) {
	c := client(t, nil)
	api := httpapi.New(c, nil)
	server := httptest.NewServer(api)
	defer server.Close()
	p := (&program{t: t, api: proxy(server), doc: readDocument(t), late: true}).other()
	defer p.call("sessions/end", J{})
	body := `{"request":1,"name":"a"}`
	send := func(body string, length int) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /v1/acquire HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nHoldfast-Session: %s\r\n"+
			"Content-Length: %d\r\n\r\n%s", p.session, length, body)
		return conn
	}
	half := send(body[:10], len(body))
	defer half.Close()
	unread := send(body, len(body))
	for range 500 {
		if held, _ := holders(t, c, "a"); held == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	unread.Close()
	a := p.call("acquire", J{"request": 1, "name": "a"})
	if a.status != 200 {
		t.Fatalf("%+v", a)
	}
	p.call("release", J{"lease": a.Lease}).is(t, 200, "")
	if held, _ := holders(t, c, "a"); held != 0 {
		t.Error("it is held")
	}
}
