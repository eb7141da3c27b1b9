package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/browser"
	"github.com/holdfast-lock/holdfast/console"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// consoleOf serves the console of a store, below a path.
func consoleOf(t *testing.T, store driver.Backend, o *console.Options) string {
	t.Helper()
	c, err := holdfast.New(t.Context(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.StripPrefix("/locks", console.Handler(c, o)))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		_ = c.Close(context.Background())
	})
	return server.URL + "/locks/"
}

// actor is a client at a store that describes itself as it likes.
type actor struct {
	t    *testing.T
	s    driver.Session
	info driver.Info
	n    *int
}

func newActor(t *testing.T, store driver.Backend, n *int, info driver.Info) *actor {
	t.Helper()
	*n++
	s, err := store.Open(t.Context(), driver.SessionConfig{ID: fmt.Sprint("actor", *n), TTL: time.Hour,
		Info: info.String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return &actor{t, s, info, n}
}

// ask asks for a lock, with a lease, and waits in the queue.
func (a *actor) ask(r driver.Request, note string) {
	a.t.Helper()
	*a.n++
	r.ID, r.Wait = fmt.Sprint("request-", *a.n), true
	if r.Mode == 0 {
		r.Mode, r.N = driver.Exclusive, 1
	}
	i := a.info
	i.Note = note
	r.Info = i.String()
	if _, err := a.s.Acquire(a.t.Context(), &r); err != nil {
		a.t.Fatal(err)
	}
}

// crowd fills a store: a deadlock of three, a semaphore, readers, a kept name, a latch, an election,
// long and hostile texts, and other names up to n.
func crowd(t *testing.T, store driver.Backend, n int) {
	t.Helper()
	number := 0
	at := func(host, program string, labels map[string]string) *actor {
		return newActor(t, store, &number, driver.Info{Host: host, PID: 4000 + number, User: "ci", Program: program,
			Labels: labels})
	}
	lock := func(name string) driver.Request { return driver.Request{Name: name} }
	a, b, c := at("web-1", "checkout", map[string]string{"team": "shop"}), at("web-2", "worker", nil),
		at("batch-7", "nightly", nil)
	a.ask(lock("stock/sku-4711"), "reserve 3 items")
	b.ask(lock("order/99812"), "capture payment")
	c.ask(lock("ledger/2026-11"), "close the month")
	a.ask(lock("order/99812"), "ship")
	b.ask(lock("ledger/2026-11"), "book")
	c.ask(lock("stock/sku-4711"), "count")
	for i := range 14 {
		at(fmt.Sprint("runner-", i), "deploy.sh", map[string]string{"ticket": fmt.Sprint("OPS-",
			100+i)}).ask(lock("deploy/prod"),
			fmt.Sprint("release ", 40+i))
	}
	for i := range 6 {
		at(fmt.Sprint("api-", i), "report", nil).ask(driver.Request{Name: "pool/reports", Mode: driver.Permits,
			N: 1, Limit: 4}, "")
	}
	for i := range 4 {
		at(fmt.Sprint("cache-", i), "reader", nil).ask(driver.Request{Name: "config/routes", Mode: driver.Shared, N: 1}, "")
	}
	at("cache-9", "writer", nil).ask(driver.Request{Name: "config/routes", Mode: driver.Exclusive, N: 1,
		ReadWrite: true}, "new routes")
	for _, x := range []string{"eu-1", "eu-2", "us-1"} {
		at(x, "scheduler", map[string]string{"candidate": "scheduler-" + x, "address": x + ".internal:8080"}).
			ask(lock("leader/scheduler"), "")
	}
	if _, err := a.s.SetCount(t.Context(), "migration/done", 3); err != nil {
		t.Fatal(err)
	}
	at("host-with-a-very-long-name-that-somebody-chose.eu-central.example", "a-program-with-a-long-name-that-goes-on-and-on",
		map[string]string{"<script>": "alert(1)", "note": "\u202egnp.exe"}).
		ask(lock("path/with/many/parts/and/a/name/that/does/not/end/soon/"+fmt.Sprint(int64(1<<62))+"/Ünïcödé/長い名前"),
			"<img src=x onerror=alert(1)> and a note that is so long that it does not fit into one line of a table on most screens")
	for i := 9; i < n; i++ { // there are so many names already
		at(fmt.Sprint("node-", i%40), "job", nil).ask(lock(fmt.Sprint("job/", i)), "")
	}
}

// TestConsole looks at each page of the console with no lock, one, 50 and 5,000.
func TestConsole(t *testing.T) {
	w := browser.Open(t)
	doctor := func(context.Context) ([]driver.Finding, error) {
		return []driver.Finding{
			{Code: "redis.eviction", Severity: driver.Endangers, Server: "cache:6379", Found: "maxmemory-policy is allkeys-lru",
				Why: "the server may delete a lock that is held", Do: "set maxmemory-policy to noeviction"},
			{Code: "redis.clock", Severity: driver.Fine, Found: "the clock agrees with this machine's within 3ms"},
		}, nil
	}
	for _, n := range []int{0, 1, 50, 5000} {
		store := memlock.New()
		t.Cleanup(func() { _ = store.Close() })
		switch n {
		case 0:
		case 1:
			number := 0
			newActor(t, store, &number, driver.Info{Host: "web-1", PID: 77, User: "ann", Program: "deploy.sh"}).
				ask(driver.Request{Name: "deploy/prod"}, "release 12")
		default:
			crowd(t, store, n)
			time.Sleep(50 * time.Millisecond)
		}
		address := consoleOf(t, store, &console.Options{Place: "redis://cache:6379/0", Doctor: doctor,
			Every:     200 * time.Millisecond,
			MayChange: func(*http.Request) (string, bool) { return "ann", true }})
		paths := [][2]string{{"now", ""}}
		if n == 50 {
			paths = [][2]string{{"pool", "lock?name=pool/reports"}, {"history", "history"}, {"elections", "elections"},
				{"store", "store"}, {"none", "?prefix=nothing"}, {"missing", "nothing"}, {"free", "lock?name=free"},
				{"lock", "lock?name=deploy/prod"}, {"now", ""}, {"dead", "lock?name=order/99812"}, {"graph", "graph"}}
		}
		began := time.Now()
		for _, of := range paths {
			page, path := of[0], of[1]
			dead := n == 50 && (page == "now" || page == "dead" || page == "graph")
			if dead { // for long enough
				time.Sleep(time.Until(began.Add(11 * time.Second)))
			}
			for _, in := range []string{"light", "dark", "phone"} {
				v := browser.Views[in]
				w.Visit(address+path, v)
				if page == "store" {
					var ready bool
					w.Ask(`new Promise(r => { const f = () => document.querySelector(".finding") ? r(true) : setTimeout(f, 50); f(); })`,
						&ready)
				}
				var shown bool
				w.Ask(`/deadlock/i.test(document.getElementById("main").innerText)`, &shown)
				if shown != dead && n != 5000 { // these may take long enough, too
					t.Errorf("%s of %d names, %s: deadlock: %v, want %v", page, n, in, shown, dead)
				}
				w.Look(fmt.Sprintf("console-%d-%s-%s", n, page, in), v)
			}
		}
	}
}

// TestConsoleLive: a page shows a new lock without being loaded again, keeps what the reader types
// and where the focus is, works with the keyboard, and breaks a lock only after the name was typed.
func TestConsoleLive(t *testing.T) {
	store := memlock.New()
	t.Cleanup(func() { _ = store.Close() })
	number := 0
	a := newActor(t, store, &number, driver.Info{Host: "web-1", PID: 77, User: "ann", Program: "deploy.sh"})
	a.ask(driver.Request{Name: "deploy/prod"}, "release 12")
	address := consoleOf(t, store, &console.Options{Every: 100 * time.Millisecond,
		MayChange: func(*http.Request) (string, bool) { return "ann", true }})
	w := browser.Open(t)
	v := browser.Views["light"]
	w.Visit(address, v)
	var ok bool
	var text string
	ask := func(expression string) bool { t.Helper(); w.Ask(expression, &ok); return ok }
	until := func(condition string) {
		t.Helper()
		ask(`new Promise(r => { let n = 0; const f = () => (` + condition + `) ? r(true) : n++ > 600 ? r(false) : setTimeout(f, 50); f(); })`)
		if !ok {
			w.Ask(`document.body.innerText`, &text)
			t.Fatalf("never: %s\n%s", condition, text)
		}
	}
	left := func() { t.Helper(); w.Loaded() } // a form leads to another page
	w.Press("/", 191)
	if !ask(`document.activeElement.id === "prefix"`) {
		t.Error("the key / does not lead to the filter")
	}
	ask(`document.activeElement.value = "dep", document.querySelector("tbody tr a").dataset.mine = "1", true`)
	a.ask(driver.Request{Name: "another/name"}, "")
	until(`document.querySelectorAll("tbody tr").length === 2`)
	if !ask(`document.activeElement.id === "prefix" && document.activeElement.value === "dep"`) {
		t.Error("an update takes the focus or what was typed")
	}
	if ask(`document.querySelectorAll("[style],script:not([src])").length > 0`) {
		t.Error("there is a style or script in the page")
	}
	// Every link and field can be reached by the keyboard, in the order of the page.
	ask(`document.activeElement.blur(), true`)
	order := ""
	for range 12 {
		w.Press("Tab", 9)
		w.Ask(`(document.activeElement.innerText || document.activeElement.name || "").trim()`, &text)
		order += text + "|"
	}
	if !strings.Contains(order, "|Show|deploy/prod|another/name|") {
		t.Errorf("the order of the keyboard is %s", order)
	}
	w.Visit(address+"lock?name=deploy/prod", v)
	ask(`document.querySelector("details:has(.danger)").open = true, document.querySelector("input[name=typed]").focus(), true`)
	ask(`document.querySelector("input[name=typed]").value = "deploy/", document.querySelector("details:has(.danger) [name=reason]").value = "it hangs", true`)
	until(`Number(document.body.dataset.loads) >= 2`)
	if !ask(`document.querySelector("details:has(.danger)").open && document.querySelector("input[name=typed]").value === "deploy/"`) {
		t.Error("an update closes the form, or empties it")
	}
	w.Look("console-form", v)
	ask(`setTimeout(() => document.querySelector("button.danger").click(), 0), true`)
	left()
	until(`document.body.innerText.includes("The name that was typed is not deploy/prod")`)
	w.Visit(address+"lock?name=deploy/prod", v)
	ask(`document.querySelector("details:has(.danger)").open = true, document.querySelector("input[name=typed]").value = "deploy/prod",
		document.querySelector("details:has(.danger) [name=reason]").value = "it hangs",
		setTimeout(() => document.querySelector("button.danger").click(), 0), true`)
	left()
	until(`document.body.innerText.includes("has ended")`)
	r, err := store.Inspect(t.Context(), "deploy/prod")
	if err != nil || len(r.Holders) != 0 {
		t.Error(r, err)
	}
}
