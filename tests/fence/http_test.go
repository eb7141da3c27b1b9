package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/fence/fencehttp"
	"github.com/holdfast-lock/holdfast/memlock"
)

// serve starts a server. ask sends it a request under tokens, and returns the status and the body of
// the answer.
func serve(t *testing.T, h http.Handler) (url string, ask func(path string, tokens ...string) (int, string)) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	t.Cleanup(s.Client().CloseIdleConnections)
	return s.URL, func(path string, tokens ...string) (int, string) {
		t.Helper()
		status, body, err := send(testContext(t), s.Client(), s.URL+path, tokens...)
		must(t, err)
		return status, body
	}
}

func send(ctx context.Context, c *http.Client, url string, tokens ...string) (status int, body string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return 0, "", err
	}
	for _, token := range tokens {
		r.Header.Add("fencing-token", token)
	}
	answer, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// byPath takes the path for the resource.
func byPath(r *http.Request) (string, error) {
	if r.URL.Path == "/" {
		return "", errors.New("no resource")
	}
	return strings.TrimPrefix(r.URL.Path, "/"), nil
}

// sqliteDatabase has the tables of the tests in a file.
func sqliteDatabase(t *testing.T, more string) *database {
	t.Helper()
	d := &database{dialect: fence.SQLite}
	d.db = open(t, "sqlite", sqliteDSN(sqliteFile(t), "&_txlock=immediate"+more))
	d.prepare(t)
	return d
}

// waits makes transactions wait for each other.
const waits = "&_pragma=busy_timeout(5000)"

// While another transaction is in the way, a request is told to come again.
func TestHTTPBusy(t *testing.T) {
	d := sqliteDatabase(t, "&_pragma=busy_timeout(0)")
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for name, h := range map[string]http.Handler{
		"sql": (&fencehttp.Guard{Store: &fencehttp.SQL{DB: d.db, Dialect: d.dialect}, Resource: byPath}).Handler(next),
		"tx":  (&fencehttp.TxGuard{DB: d.db, Dialect: d.dialect, Resource: byPath}).Handler(next),
	} {
		_, ask := serve(t, h)
		other, err := d.db.BeginTx(testContext(t), nil) // it writes from the beginning
		must(t, err)
		if status, body := ask("/a", "1"); status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s; want 503", name, status, body)
		}
		must(t, other.Rollback())
		if status, body := ask("/a", "1"); status != http.StatusOK {
			t.Errorf("%s, again: %d %s", name, status, body)
		}
	}
}

// A request is refused if its token is missing, malformed or stale; with every store.
func TestHTTPGuard(t *testing.T) {
	d := sqliteDatabase(t, waits)
	handled := 0
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handled++; fmt.Fprint(w, "done") })
	for name, h := range map[string]http.Handler{
		"memory": (&fencehttp.Guard{Store: &fencehttp.Memory{}, Resource: byPath}).Handler(next),
		"sql":    (&fencehttp.Guard{Store: &fencehttp.SQL{DB: d.db, Dialect: d.dialect}, Resource: byPath}).Handler(next),
		"tx":     (&fencehttp.TxGuard{DB: d.db, Dialect: d.dialect, Resource: byPath}).Handler(next),
	} {
		t.Run(name, func(t *testing.T) {
			exec(t, d.db, `DELETE FROM hf_fence`)
			handled = 0
			_, ask := serve(t, h)
			allowed := 0
			for i, step := range []struct {
				path   string
				tokens []string
				want   int
			}{
				{"/a", []string{"5"}, 200}, {"/a", []string{"5"}, 200}, {"/a", []string{"4"}, 412}, {"/b", []string{"4"}, 200},
				{"/a", []string{"9223372036854775807"}, 200}, {"/a", []string{"6"}, 412},
				{"/a", nil, 400}, {"/a", []string{"5", "5"}, 400}, {"/a", []string{"5", "9223372036854775807"}, 400},
				{"/a", []string{""}, 400}, {"/a", []string{"0"}, 400}, {"/a", []string{"05"}, 400},
				{"/a", []string{"+5"}, 400},
				{"/a", []string{"-5"}, 400}, {"/a", []string{"5.0"}, 400}, {"/a", []string{"5,6"}, 400},
				{"/a", []string{"0x5"}, 400},
				{"/a", []string{"9223372036854775808"}, 400}, {"/a", []string{"18446744073709551616"}, 400},
				{"/", []string{"5"}, 400}, {"/" + strings.Repeat("x", 513), []string{"5"}, 400},
			} {
				status, body := ask(step.path, step.tokens...)
				if status != step.want {
					t.Errorf("step %d, %s with %q: %d %s; want %d", i, step.path, step.tokens, status, body, step.want)
				}
				if step.want == 200 {
					allowed++
				}
			}
			if handled != allowed {
				t.Errorf("%d requests were handled; want %d", handled, allowed)
			}
		})
	}
}

// A mistake of the server is not the client's: its text is not for clients.
func TestHTTPMistake(t *testing.T) {
	d := sqliteDatabase(t, waits)
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was handled") })
	for name, h := range map[string]http.Handler{
		"sql": (&fencehttp.Guard{Store: &fencehttp.SQL{DB: d.db, Dialect: 9}, Resource: byPath}).Handler(next),
		"tx":  (&fencehttp.TxGuard{DB: d.db, Dialect: 9, Resource: byPath}).Handler(next),
	} {
		_, ask := serve(t, h)
		if status, body := ask("/a", "1"); status != http.StatusInternalServerError || strings.Contains(body, "dialect") {
			t.Errorf("%s: %d %s; want 500", name, status, body)
		}
	}
}

// addCounter adds one to the counter of the path: in the request's transaction if there is one.
func addCounter(t *testing.T, db *sql.DB, w http.ResponseWriter, r *http.Request) {
	name, _ := byPath(r)
	statement := `UPDATE counter SET n = n + 1 WHERE name = '` + name + `'`
	var err error
	if tx := fencehttp.Tx(r.Context()); tx != nil {
		_, err = tx.Exec(statement)
	} else {
		_, err = db.Exec(statement)
	}
	if err != nil {
		t.Error(err)
		http.Error(w, "failed", http.StatusInternalServerError)
	}
}

// A holder is frozen before it sends. Its late request is refused, and accepted without the guard.
// The tokens are those of leases.
func TestHTTPFrozenClient(t *testing.T) {
	d := sqliteDatabase(t, waits)
	name := d.counter(t)
	write := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { addCounter(t, d.db, w, r) })
	guarded, _ := serve(t, (&fencehttp.TxGuard{DB: d.db, Dialect: d.dialect, Resource: byPath}).Handler(write))
	open, _ := serve(t, write)
	c, err := holdfast.New(testContext(t), memlock.New(), nil)
	must(t, err)
	defer func() { must(t, c.Close(context.Background())) }()
	transport := &fencehttp.Transport{Base: &http.Transport{DisableKeepAlives: true}}
	holder := http.Client{Transport: transport}
	post := func(ctx context.Context, url string) (int, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/"+name, strings.NewReader("body"))
		must(t, err)
		r.Header["fencing-token"] = []string{"999"} // of another spelling than the token that replaces it
		answer, err := holder.Do(r)
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}
	expect := func(what string, ctx context.Context, url string, want int) {
		t.Helper()
		if status, err := post(ctx, url); status != want || err != nil {
			t.Errorf("%s: %d, %v; want %d", what, status, err, want)
		}
	}

	first, err := c.Mutex(name).Lock(testContext(t))
	must(t, err)
	frozen := context.WithoutCancel(first.Context(testContext(t))) // it does not notice its loss
	expect("the first holder", frozen, guarded, 200)
	must(t, c.Break(testContext(t), name, first.Token(), ""))
	second, err := c.Mutex(name).Lock(testContext(t))
	must(t, err)
	expect("the second holder", second.Context(testContext(t)), guarded, 200)
	expect("the first holder's late request", frozen, guarded, http.StatusPreconditionFailed)
	if n := d.value(t, name); n != 2 {
		t.Errorf("the counter is %d; want 2", n)
	}
	expect("the late request without the guard", frozen, open, 200)
	if n := d.value(t, name); n != 3 {
		t.Errorf("without the guard the counter is %d; want 3", n)
	}
	if _, err := post(testContext(t), guarded); !errors.Is(err, fencehttp.ErrNoToken) {
		t.Errorf("a request without a lease: %v", err)
	}
	transport.Token = func(context.Context) uint64 { return second.Token() }
	expect("a token of the caller's choice", testContext(t), guarded, 200)
}

// A handler is frozen after the check. Guard does not stop its late write, as documented. With
// TxGuard a newer request cannot come in between, so there is no late write.
func TestHTTPFrozenHandler(t *testing.T) {
	_, d := postgres(t)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	frozen, thaw := make(chan bool, 1), make(chan bool, 1)
	var order []string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.Header.Get(fencehttp.Header)
		if token == "1" {
			frozen <- true
			select {
			case <-thaw:
			case <-r.Context().Done(): // the test has failed
			}
		}
		order = append(order, token)
		addCounter(t, d.db, w, r)
	})
	type result struct {
		status int
		err    error
	}
	start := func(url, token string) <-chan result {
		got := make(chan result, 1)
		go func() {
			status, _, err := send(ctx, http.DefaultClient, url, token)
			got <- result{status, err}
		}()
		return got
	}
	defer http.DefaultClient.CloseIdleConnections()
	status := func(got <-chan result) int {
		t.Helper()
		r := <-got // ctx bounds it
		must(t, r.err)
		return r.status
	}
	awaitFrozen := func() {
		t.Helper()
		select {
		case <-frozen:
		case <-ctx.Done():
			t.Fatal("the first request has not reached the handler")
		}
	}

	name := d.counter(t)
	url, _ := serve(t, (&fencehttp.Guard{Store: &fencehttp.SQL{DB: d.db, Dialect: d.dialect}, Resource: byPath}).Handler(
		handler))
	first := start(url+"/"+name, "1")
	awaitFrozen()
	if n := status(start(url+"/"+name, "2")); n != 200 {
		t.Fatalf("the newer request: %d", n)
	}
	thaw <- true
	if n := status(first); n != 200 || strings.Join(order, " ") != "2 1" {
		t.Errorf("Guard: the frozen handler's answer is %d, the order of writes %v", n, order)
	}

	order = nil
	name = d.counter(t)
	url, ask := serve(t, (&fencehttp.TxGuard{DB: d.db, Dialect: d.dialect, Resource: byPath}).Handler(handler))
	first = start(url+"/"+name, "1")
	awaitFrozen()
	second := start(url+"/"+name, "2")
	d.awaitWaiter(ctx, t, nil)
	thaw <- true
	if n, m := status(first), status(second); n != 200 || m != 200 || strings.Join(order, " ") != "1 2" {
		t.Errorf("TxGuard: %d, %d, the order of writes %v", n, m, order)
	}
	if n, _ := ask("/"+name, "1"); n != http.StatusPreconditionFailed {
		t.Errorf("TxGuard: a late request: %d", n)
	}
}

// watchedWriter notes how many connections were in use when the answer began.
type watchedWriter struct {
	*httptest.ResponseRecorder
	db    *sql.DB
	inUse int
}

func (w *watchedWriter) WriteHeader(status int) {
	w.inUse = w.db.Stats().InUse
	w.ResponseRecorder.WriteHeader(status)
}

// The transaction of a TxGuard is committed before the client gets an answer, and not at all if the
// handler fails.
func TestHTTPTransaction(t *testing.T) {
	d := sqliteDatabase(t, waits)
	name := d.counter(t)
	var end func(w http.ResponseWriter, r *http.Request)
	_, ask := serve(t, (&fencehttp.TxGuard{DB: d.db, Dialect: d.dialect, Resource: byPath}).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			addCounter(t, d.db, w, r)
			end(w, r)
		})))
	for i, c := range []struct {
		end  func(w http.ResponseWriter, r *http.Request)
		want int
		adds int64
	}{
		{func(w http.ResponseWriter, _ *http.Request) {}, 200, 1},
		{func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(500) }, 201, 1},
		{func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusConflict) }, http.StatusConflict, 0},
		{func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "half"); w.WriteHeader(500) }, 200, 1},
		{func(w http.ResponseWriter, r *http.Request) { _ = fencehttp.Tx(r.Context()).Rollback() }, 500, 0},
	} {
		before := d.value(t, name)
		end = c.end
		if status, body := ask("/"+name, fmt.Sprint(i+1)); status != c.want {
			t.Errorf("case %d: %d %s; want %d", i, status, body, c.want)
		}
		if n := d.value(t, name) - before; n != c.adds {
			t.Errorf("case %d: the counter grew by %d; want %d", i, n, c.adds)
		}
	}
	// A handler that failed has not raised the token.
	end = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusConflict) }
	ask("/"+name, "50")
	end = func(http.ResponseWriter, *http.Request) {}
	if status, _ := ask("/"+name, "49"); status != 200 {
		t.Errorf("after a failed request under 50, one under 49: %d", status)
	}
	// The transaction of a handler that failed has ended when its answer is sent: the client may be slow.
	h := (&fencehttp.TxGuard{DB: d.db, Dialect: d.dialect, Resource: byPath}).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { addCounter(t, d.db, w, r); end(w, r) }))
	request := func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/"+name, nil)
		r.Header.Set(fencehttp.Header, "60")
		return r
	}
	end = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusConflict) }
	w := &watchedWriter{ResponseRecorder: httptest.NewRecorder(), inUse: -1, db: d.db}
	if h.ServeHTTP(w, request()); w.Code != http.StatusConflict || w.inUse != 0 {
		t.Errorf("the answer is %d; %d transactions are open; want 0", w.Code, w.inUse)
	}
	// A panic rolls back, and goes on to the server.
	end = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	before := d.value(t, name)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not go on")
			}
		}()
		h.ServeHTTP(httptest.NewRecorder(), request())
	}()
	if n := d.value(t, name); n != before {
		t.Errorf("after a panic the counter is %d; want %d", n, before)
	}
}
