package console_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/console"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(readersEnd{m}) }

// readersEnd waits for the readers after the tests. A reader ends some time after its last viewer: the
// longer its last reading took, the later.
type readersEnd struct{ *testing.M }

func (m readersEnd) Run() int {
	code := m.M.Run()
	stacks := make([]byte, 1<<20)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("console.(*reader).run")) {
			break
		}
	}
	return code
}

func newClient(t testing.TB, store driver.Backend, cfg *holdfast.Config) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(context.Background(), store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil && !errors.Is(err, driver.ErrUnavailable) {
			t.Error(err)
		}
	})
	return c
}

func lock(t testing.TB, c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Lease {
	t.Helper()
	l, err := c.Mutex(name, opts...).TryLock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wait makes c wait for a name until the end of the test.
func wait(t testing.TB, c *holdfast.Client, name string) {
	t.Helper()
	before, err := c.Inspect(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if l, err := c.Mutex(name).Lock(ctx); err == nil {
			_ = l.Release()
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	for range 1000 {
		if r, err := c.Inspect(context.Background(), name); err != nil || r.Waiting > before.Waiting {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("it does not wait")
}

// get returns the status and the page.
func get(t testing.TB, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	checkHeaders(t, w.Header())
	return w.Code, w.Body.String()
}

func checkHeaders(t testing.TB, h http.Header) {
	t.Helper()
	policy := h.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';",
		"frame-ancestors 'none'",
		"base-uri 'none'", "form-action 'self'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy lacks %s: %s", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" ||
		h.Get("X-Frame-Options") != "DENY" {
		t.Error(h)
	}
}

var tags = regexp.MustCompile(`<[^>]*>`)

// text returns what a reader sees of a page.
func text(page string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(page, " "))), " ")
}

func wants(t testing.TB, page string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text(page), p) {
			t.Errorf("the page lacks %q:\n%s", p, text(page))
		}
	}
}

func TestPages(t *testing.T) {
	store := memlock.New()
	c := newClient(t, store, &holdfast.Config{Program: "deploy.sh", Labels: map[string]string{"team": "ops"}})
	h := console.Handler(c, &console.Options{Place: "memory", Doctor: func(context.Context) ([]driver.Finding, error) {
		return []driver.Finding{{Code: "memory.place", Severity: driver.Fine, Found: "all is well"}, {Code: "memory.x",
			Severity: driver.Endangers, Found: "it is <b>bad</b>", Why: "so", Do: "this"}}, nil
	}})
	_, page := get(t, h, "/")
	wants(t, page, "No lock is in use.")

	h = console.Handler(c, &console.Options{Every: time.Nanosecond})
	l := lock(t, c, "deploy/prod", holdfast.Note("release 12"))
	lock(t, c, "other")
	wait(t, c, "deploy/prod")
	_, page = get(t, h, "/")
	wants(t, page, "2 names in use, 1 waiting", "deploy/prod", "release 12", "team=ops", "exclusive")
	if strings.Index(page, "deploy/prod") > strings.Index(page, ">other<") {
		t.Error("the name with a waiter does not come first")
	}
	for path, want := range map[string]int{"/?prefix=deploy": 1, "/?prefix=deploy/": 1, "/?prefix=x": 0, "/?label=team": 2,
		"/?label=team%3Dops": 2, "/?label=team%3Dx": 0, "/?host=nowhere": 0, "/?sort=name": 2, "/?page=99": 2,
		"/?page=-1": 2} {
		if _, page := get(t, h, path); strings.Count(page, "<tr data-key") != want {
			t.Errorf("%s shows %d rows, want %d", path, strings.Count(page, "<tr data-key"), want)
		}
	}
	code, page := get(t, h, "/lock?name=deploy/prod")
	wants(t, page, "deploy/prod", "release 12", "1 request waits", "holdfast info deploy/prod",
		fmt.Sprintf("holdfast break --token %d deploy/prod", l.Token()))
	r, err := c.Inspect(t.Context(), "deploy/prod")
	if err != nil || code != 200 {
		t.Fatal(err, code)
	}
	for _, id := range []string{r.Holders[0].ID, r.Waiters[0].ID} {
		if strings.Contains(page, id) {
			t.Error("the page shows the ID of a request")
		}
	}
	if strings.Contains(page, "<form method=\"post\"") {
		t.Error("a console that only reads has a form")
	}
	_, page = get(t, h, "/lock?name=nothing")
	wants(t, page, "Nobody uses this name.")
	for path, want := range map[string]int{"/lock": 400, "/lock?name=%ff": 400,
		"/lock?name=" + strings.Repeat("x", 513): 400,
		"/nothing":                               404, "/lock/deploy": 404, "/static/../console.go": 404,
		"/static/style.css": 200,
		"/static/script.js": 200,
		"/static/":          404, "/store": 404, "/graph": 200, "/history": 200, "/elections": 200} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		checkHeaders(t, w.Header())
		if w.Code != want && !(w.Code == 307 && want == 404) {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

// Names are any text. Each has its page, none changes the page of another, and nothing that a
// client wrote is markup.
func TestHostileTexts(t *testing.T) {
	c := newClient(t, memlock.New(), nil)
	h := console.Handler(c, &console.Options{MayChange: func(*http.Request) (string, bool) { return "ann", true }})
	bad := `<script>alert(1)</script>"'&` + "`${x}"
	names := []string{"../../etc/passwd", "a/b", "a%2fb", "a%252fb", ".", "..", "/", "//x", "a?b=c&d", "a#b",
		"a b", "a+b", "a\nb",
		"a\r\nb", "a\x00b", "\u202egnp.exe", "a\u200bb", "javascript:alert(1)", bad, " ",
		`"`, "{{.}}", "data-key=\"x\" onload=x",
		strings.Repeat("长", 170), "]]>", "-->", "\ufeff"}
	for _, n := range names {
		lock(t, c, n, holdfast.Note("note "+bad), holdfast.Label("label"+bad, bad), holdfast.Label("address", "javascript:x"))
	}
	paths := []string{"/", "/graph", "/history", "/elections"}
	for _, n := range names {
		q := "/lock?name=" + url.QueryEscape(n)
		paths = append(paths, q)
		code, page := get(t, h, q)
		if code != 200 || !strings.Contains(page, "Break the grant with token") {
			t.Errorf("%q has no page: %d", n, code)
		}
		if _, list := get(t, h, "/"); !strings.Contains(html.UnescapeString(list),
			`href="lock?name=`+url.QueryEscape(n)+`"`) {
			t.Errorf("%q has no link", n)
		}
	}
	for _, path := range paths {
		_, page := get(t, h, path)
		if n := strings.Count(page, "<script"); n != 1 {
			t.Errorf("%s has %d scripts", path, n)
		}
		for _, word := range []string{" onload=", "href=\"javascript", " style=", "\u202e", "\u200b", "src=\"http"} {
			if strings.Contains(strings.ReplaceAll(page, html.EscapeString("data-key=\"x\" onload=x"), ""), word) {
				t.Errorf("%s contains %q", path, word)
			}
		}
	}
}

// Open pages hear of each reading. All share one, and leave nothing behind.
func TestEvents(t *testing.T) {
	c := newClient(t, memlock.New(), nil)
	server := httptest.NewServer(http.StripPrefix("/locks", console.Handler(c,
		&console.Options{Every: 10 * time.Millisecond,
			MaxViewers: 20})))
	defer server.Close()
	var open []io.Closer
	for i := range 21 {
		r, err := http.Get(server.URL + "/locks/events")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, r.Body)
		if i == 20 {
			if r.StatusCode != 503 {
				t.Errorf("too many viewers: %d", r.StatusCode)
			}
			break
		}
		heard, b := "", make([]byte, 100)
		for strings.Count(heard, "event: reading") < 3 {
			n, err := r.Body.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			heard += string(b[:n])
		}
	}
	for _, x := range open {
		_ = x.Close()
	}
	http.DefaultClient.CloseIdleConnections()
}

// A store that fails leaves the last reading on the page, which says so.
func TestOutage(t *testing.T) {
	store := &failing{Backend: memlock.New()}
	c := newClient(t, store, nil)
	lock(t, c, "a")
	h := console.Handler(c, &console.Options{Every: time.Nanosecond})
	get(t, h, "/")
	store.err = fmt.Errorf("%w: dial tcp 10.1.2.3:6379: password hunter2", driver.ErrRefused)
	code, page := getUntil(t, h, "the outage is seen", func(page string) bool {
		return strings.Contains(page, "This is the reading of")
	})
	wants(t, page, "This is the reading of", "the store refuses this console", "1 name")
	if strings.Contains(page, "hunter2") || strings.Contains(page, "10.1.2.3") || code != 200 {
		t.Error(code, page)
	}
	_, page = get(t, h, "/lock?name=a")
	wants(t, page, "This is the reading of")
	_, page = get(t, console.Handler(c, nil), "/")
	wants(t, page, "Nothing could be read yet")
	store.err = nil
	getUntil(t, h, "the outage is over", func(page string) bool {
		return !strings.Contains(page, "This is the reading of")
	})
}

// getUntil reads the page of all locks until ok. A reading that took long is current for longer.
func getUntil(t *testing.T, h http.Handler, what string, ok func(page string) bool) (code int, page string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if code, page = get(t, h, "/"); ok(page) {
			return code, page
		}
		if time.Now().After(end) {
			t.Fatalf("%s, and the page does not know:\n%s", what, text(page))
		}
	}
}

type failing struct {
	driver.Backend
	err error
}

func (f *failing) List(ctx context.Context, prefix, after string, n int) ([]driver.Record, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.Backend.List(ctx, prefix, after, n)
}

func (f *failing) Inspect(ctx context.Context, name string) (driver.Record, error) {
	if f.err != nil {
		return driver.Record{}, f.err
	}
	return f.Backend.Inspect(ctx, name)
}

// The style and the pages agree: each class of a template has a rule.
func TestNoOutsideAssets(t *testing.T) {
	for _, name := range []string{"static/style.css", "static/script.js", "templates/frame.html", "templates/now.html",
		"templates/lock.html"} {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"http:", "https:", "@import", "innerHTML", "eval(", "style=\"", "onclick"} {
			if strings.Contains(string(file), word) {
				t.Errorf("%s contains %s", name, word)
			}
		}
	}
}
