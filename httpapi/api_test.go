package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/httpapi"
	"github.com/holdfast-lock/holdfast/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = holdfast.DefaultTTL

// client returns a client that is closed at the end of the test.
func client(t testing.TB, cfg *holdfast.Config) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(context.Background(), memlock.New(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// program calls the API, and compares each answer with the document.
type program struct {
	t       testing.TB
	api     http.Handler
	doc     *document
	session string
	late    bool // answers may take long: the program is not on a clock of its own
}

// answer is any answer.
type answer struct {
	status   int
	header   http.Header
	Session  string
	Token    string
	Lease    string
	Trusted  int64  `json:"trusted_ms"`
	TTL      int64  `json:"ttl_ms"`
	Asked    string `json:"asked_to_release"`
	Waiting  any
	Queue    int
	Released any
	Leases   []struct {
		Request uint64
		Token   string
		Trusted int64 `json:"trusted_ms"`
		Error   *failure
	}
	Error failure
}

type failure struct{ Code, Message, Reason string }

// is reports an answer that is another one.
func (a *answer) is(t testing.TB, status int, code string) {
	t.Helper()
	if a.status != status || a.Error.Code != code {
		t.Errorf("the answer is %d %+v, want %d %s", a.status, a.Error, status, code)
	}
}

func (p *program) do(ctx context.Context, path string, body any) *answer {
	p.t.Helper()
	text, isText := body.(string)
	if !isText {
		b, err := json.Marshal(body)
		if err != nil {
			p.t.Fatal(err)
		}
		text = string(b)
	}
	r := httptest.NewRequestWithContext(ctx, "POST", "/v1/"+path, bytes.NewReader([]byte(text)))
	r.Header.Set("Content-Type", "application/json")
	if p.session != "" {
		r.Header.Set("Holdfast-Session", p.session)
	}
	w := httptest.NewRecorder()
	p.api.ServeHTTP(w, r)
	if w.Body.Len() == 0 && ctx.Err() != nil {
		return &answer{}
	}
	p.doc.checkAnswer(p.t, r, w.Code, w.Body.Bytes())
	a := &answer{status: w.Code, header: w.Header()}
	if err := json.Unmarshal(w.Body.Bytes(), a); err != nil {
		p.t.Errorf("%v: %s", err, w.Body)
	}
	return a
}

// J is a JSON object.
type J map[string]any

func (p *program) call(path string, body any) *answer {
	p.t.Helper()
	return p.do(context.Background(), path, body)
}

// other returns another program with a session of its own.
func (p *program) other() *program {
	p.t.Helper()
	o := p.begin()
	if o == nil {
		p.t.FailNow()
	}
	return o
}

// begin is other for a goroutine that may not end the test; nil: it has failed.
func (p *program) begin() *program {
	p.t.Helper()
	o := *p
	o.session = ""
	a := o.call("sessions", J{"client": "test"})
	if a.status != 201 || a.Session == "" || a.Trusted > a.TTL*9/10 || a.Trusted < a.TTL*7/10 && !p.late {
		p.t.Errorf("%+v", a)
		return nil
	}
	o.session = a.Session
	return &o
}

// take takes a lock that is free.
func (p *program) take(number int, name string) *answer {
	p.t.Helper()
	a := p.call("acquire", J{"request": number, "name": name})
	if a.status != 200 || a.Lease == "" || a.Token == "" || a.Trusted <= 0 || a.Trusted > (ttl*9/10).Milliseconds() {
		p.t.Fatalf("%+v", a)
	}
	return a
}

// inBubble runs f with a server, on a clock of its own.
func inBubble(t *testing.T, cfg *httpapi.Config,
	f func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program)) {
	t.Helper()
	doc := readDocument(t)
	synctest.Test(t, func(t *testing.T) {
		c := client(t, nil)
		s := httpapi.New(c, cfg)
		p := (&program{t: t, api: s, doc: doc}).other()
		f(t, c, s, p)
		ctx, cancel := context.WithTimeout(context.Background(), 2*ttl)
		defer cancel()
		if err := s.Drain(ctx); err != nil {
			t.Error(err)
		}
	})
}

// holders returns how many hold a name, and how many wait.
func holders(t testing.TB, c *holdfast.Client, name string) (held, waiting int) {
	t.Helper()
	r, err := c.Inspect(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return len(r.Holders), r.Waiting
}

// An answer with a grant can be repeated, and takes no second grant.
func TestLostAnswer(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program) {
		first := p.take(1, "a")
		time.Sleep(ttl / 2)
		again := p.take(1, "a")
		if again.Lease != first.Lease || again.Token != first.Token {
			t.Errorf("%+v\n%+v", first, again)
		}
		if again.Trusted < (ttl * 8 / 10).Milliseconds() {
			t.Errorf("a repeat does not renew: %d", again.Trusted)
		}
		p.call("acquire", J{"request": 1, "name": "b"}).is(t, 409, "request_differs")
		p.call("acquire", J{"request": 1, "name": "a", "mode": "shared"}).is(t, 409, "request_differs")
		p.call("release", J{"lease": first.Lease}).is(t, 200, "")
		p.call("release", J{"lease": first.Lease}).is(t, 200, "")
		p.call("acquire", J{"request": 1, "name": "a"}).is(t, 410, "released")
		p.call("renew", J{"lease": first.Lease}).is(t, 410, "released")
		if held, _ := holders(t, c, "a"); held != 0 {
			t.Error("it is still held")
		}
		if second := p.take(2, "a"); second.Token <= first.Token && len(second.Token) <= len(first.Token) {
			t.Errorf("token %s after %s", second.Token, first.Token)
		}
	})
}

// A connection that ends in the middle of a long poll leaves the queue at once. The number can be
// used again.
func TestVanish(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program) {
		l, err := c.Mutex("a").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan *answer, 1)
		go func() { ended <- p.do(ctx, "acquire", J{"request": 1, "name": "a"}) }()
		synctest.Wait()
		if _, n := holders(t, c, "a"); n != 1 {
			t.Fatalf("%d wait", n)
		}
		cancel()
		<-ended
		time.Sleep(50 * time.Millisecond)
		if _, n := holders(t, c, "a"); n != 0 {
			t.Fatalf("%d still wait", n)
		}
		if a := p.call("acquire", J{"request": 1, "name": "a"}); a.status != 202 || a.Queue != 1 {
			t.Errorf("%+v", a)
		}
		// Between two polls the place stays.
		go func() { ended <- p.call("acquire", J{"request": 1, "name": "a"}) }()
		synctest.Wait()
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		if a := <-ended; a.status != 200 {
			t.Errorf("%+v", a)
		}
	})
}

// A program that does not ask again loses its place, and a grant that no answer has reported.
func TestNoPoll(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program) {
		l, err := c.Mutex("a").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for number, release := range map[int]bool{1: false, 2: true} {
			if a := p.call("acquire", J{"request": number, "name": "a", "poll_ms": 0}); a.status != 202 {
				t.Fatalf("%+v", a)
			}
			if release {
				if err := l.Release(); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(ttl/3 - time.Second)
			held, waits := holders(t, c, "a")
			if held != 1 || waits > 0 && release {
				t.Errorf("%d hold, %d wait", held, waits)
			}
			p.call("sessions/heartbeat", J{})
			time.Sleep(time.Second + 50*time.Millisecond)
			held, waits = holders(t, c, "a")
			if release && held != 0 || waits != 0 {
				t.Errorf("later, %d hold, %d wait", held, waits)
			}
			if number == 1 {
				continue
			}
		}
	})
}

// The end of a session frees exactly its locks: a TTL after its last request, not before.
func TestSessionDies(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program) {
		q := p.other()
		began := time.Now()
		a, b := p.take(1, "a"), q.take(1, "b")
		p.take(2, "c")
		go p.call("acquire", J{"request": 3, "name": "b"})
		for time.Since(began) < ttl-100*time.Millisecond {
			x := q.call("sessions/heartbeat", J{"leases": []string{b.Lease}})
			if len(x.Leases) != 1 || x.Leases[0].Trusted == 0 {
				t.Fatalf("%+v", x)
			}
			time.Sleep(ttl / 100)
		}
		// The library gives a MaxHold back up to a hundredth early, when no program trusts it.
		time.Sleep(ttl + ttl/50 - time.Since(began))
		for name, want := range map[string]int{"a": 0, "b": 1, "c": 0} {
			if held, waits := holders(t, c, name); held != want || waits != 0 {
				t.Errorf("%s: %d hold it, %d wait", name, held, waits)
			}
		}
		p.call("sessions/heartbeat", J{"leases": []string{a.Lease}}).is(t, 410, "no_such_session")
		p.call("release", J{"lease": a.Lease}).is(t, 410, "no_such_session")
		p.call("acquire", J{"request": 9, "name": "z"}).is(t, 410, "no_such_session")
	})
}

// A lease that heartbeats do not list ends although the session lives.
func TestUnlisted(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program) {
		a, b := p.take(1, "a"), p.take(2, "b")
		sent := time.Now()
		for range 5 {
			time.Sleep(ttl / 4)
			p.call("sessions/heartbeat", J{"leases": []string{b.Lease}})
		}
		if held, _ := holders(t, c, "a"); held != 0 {
			t.Error("a lease that nobody renews is held")
		}
		if time.Since(sent) < time.Duration(a.Trusted)*time.Millisecond {
			t.Error("it ended while it was trusted")
		}
		if x := p.call("renew", J{"lease": a.Lease}); x.status != 410 || x.Error.Reason != "not renewed" {
			t.Errorf("%+v", x)
		}
		p.call("acquire", J{"request": 1, "name": "a"}).is(t, 410, "lost")
		x := p.call("sessions/heartbeat", J{"leases": []string{a.Lease, b.Lease, "x"}})
		if len(x.Leases) != 3 || x.Leases[0].Error == nil || x.Leases[1].Error != nil || x.Leases[1].Request != 2 ||
			x.Leases[2].Error.Code != "unknown_lease" {
			t.Errorf("%+v", x)
		}
	})
}

// A program never trusts a lease at a time at which another can have it, whatever delays the
// answer.
func TestTrust(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program) {
		l, err := c.Mutex("a").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(ttl/4, func() { _ = l.Release() })
		sent := time.Now()
		a := p.call("acquire", J{"request": 1, "name": "a"})
		if a.status != 200 || time.Since(sent) < ttl/4 {
			t.Fatalf("%+v", a)
		}
		trusted := sent.Add(time.Duration(a.Trusted) * time.Millisecond)
		next, err := c.Mutex("a").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if time.Now().Before(trusted) || trusted.Sub(sent) < ttl/2 {
			t.Errorf("trusted for %v, and another has it after %v", trusted.Sub(sent), time.Since(sent))
		}
		if err := next.Release(); err != nil {
			t.Error(err)
		}
	})
}

// Nobody ends or renews what is another's.
func TestOthersSecrets(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *holdfast.Client, s *httpapi.Server, p *program) {
		a := p.take(1, "a")
		q := p.other()
		for _, path := range []string{"renew", "release"} {
			q.call(path, J{"lease": a.Lease}).is(t, 404, "unknown_lease")
			p.call(path, J{"lease": ""}).is(t, 404, "unknown_lease")
			p.call(path, J{"lease": a.Lease + "x"}).is(t, 404, "unknown_lease")
		}
		q.call("cancel", J{"request": 1}).is(t, 200, "")
		none := &program{t: t, api: s, doc: p.doc}
		none.call("release", J{"lease": a.Lease}).is(t, 401, "no_session")
		none.session = p.session[1:] + "a"
		none.call("release", J{"lease": a.Lease}).is(t, 410, "no_such_session")
		if held, _ := holders(t, c, "a"); held != 1 {
			t.Error("it is free")
		}
		// What the API shows is no capability.
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", "/v1/lock?name=a", nil))
		r, err := c.Inspect(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{a.Lease, p.session, r.Holders[0].ID} {
			if bytes.Contains(w.Body.Bytes(), []byte(secret)) {
				t.Errorf("%s shows %s", w.Body, secret)
			}
		}
	})
}
