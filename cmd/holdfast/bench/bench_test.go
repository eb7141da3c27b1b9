package bench_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/browser"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/open"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func opened(t *testing.T, url string) *open.Store {
	t.Helper()
	st, err := open.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

// free expects that no name is in use.
func free(t *testing.T, st *open.Store) {
	t.Helper()
	if list, err := st.List(t.Context(), "", "", 10); err != nil || len(list) > 0 {
		t.Errorf("left in use: %v, %v", list, err)
	}
}

// find returns the row of a workload.
func find(t *testing.T, r *bench.Result, name string) *bench.Row {
	t.Helper()
	i := slices.IndexFunc(r.Rows, func(row *bench.Row) bool { return row.Name == name })
	if i < 0 {
		t.Fatalf("no row %s in %v", name, r.Rows)
	}
	return r.Rows[i]
}

// Every workload has figures on every kind of store, in each form of output, and nothing stays in
// use.
func TestRun(t *testing.T) {
	const ms = time.Millisecond
	redis := testenv.Redis(t)
	for name, url := range map[string]string{
		"memory": "memory:", "sqlite": "sqlite:" + filepath.Join(t.TempDir(), "locks.db"), "redis": redis.URL(),
	} {
		t.Run(name, func(t *testing.T) {
			st := opened(t, url)
			var said []string
			r, err := bench.Run(t.Context(), bench.Options{Store: st, URL: url, Duration: 100 * ms, Count: 2,
				Say: func(text string) { said = append(said, text) }})
			if err != nil {
				t.Fatal(err, r)
			}
			if !r.Complete || !r.Measured() || r.TTL != holdfast.DefaultTTL || len(r.Rows) != len(bench.Names()) ||
				len(said) != 1+2*len(r.Rows) {
				t.Errorf("%+v, said %q", r, said)
			}
			for i, row := range r.Rows {
				check(t, row, bench.Names()[i])
			}
			alone := len(r.Notes) > 0 && strings.Contains(r.Notes[0], "memory of this process")
			if alone != (name == "memory") {
				t.Errorf("notes: %q", r.Notes)
			}
			checkText(t, r)
			checkGo(t, r)
			checkPage(t, r)
			free(t, st)
			if name == "redis" {
				for _, key := range regexp.MustCompile(`hf:\S*bench/\S*`).FindAllString(redis.Do("KEYS *bench/*"), -1) {
					if ttl := redis.Do("PTTL " + key); !regexp.MustCompile(`^:[1-9][0-9]*\s*$`).MatchString(ttl) {
						t.Errorf("%s does not expire: %q", key, ttl)
					}
				}
			}
		})
	}
}

func check(t *testing.T, row *bench.Row, name string) {
	t.Helper()
	if row.Name != name || row.Err != nil || row.Errors != 0 || len(row.Rounds) != 2 ||
		row.Contended != strings.HasPrefix(name, "one/") {
		t.Fatalf("%s: %+v", name, row)
	}
	for _, m := range append(row.Rounds, row.Median()) {
		if m.Ops < 1 || m.PerSecond <= 0 || m.P50 <= 0 || m.P90 < m.P50 || m.P99 < m.P90 || m.Max < m.P99 ||
			m.TimesP50 <= 0 || m.TimesP99 < m.TimesP50 || m.Took < 100*time.Millisecond {
			t.Errorf("%s: %+v", name, m)
		}
		if row.Contended != (m.Jain > 0) || m.Jain > 1.0001 || row.Contended != (m.LongestWait > 0) {
			t.Errorf("%s: fairness %v, longest wait %v", name, m.Jain, m.LongestWait)
		}
	}
	if perSecond, p50 := row.Spread(); perSecond < 0 || perSecond > 1 || p50 < 0 {
		t.Errorf("%s: spread %v, %v", name, perSecond, p50)
	}
}

func checkText(t *testing.T, r *bench.Result) {
	t.Helper()
	plain, drawn := r.Text(false), r.Text(true)
	for _, row := range r.Rows {
		line := regexp.MustCompile(`(?m)^` + row.Name +
			` +[0-9,]+ ±[0-9]+%( +[0-9.]+ (ns|µs|ms|s)( ±[0-9]+%)?){4} +[0-9.]+ +(0\.[0-9]{2}|1\.00)? +0$`)
		if !line.MatchString(plain) {
			t.Errorf("no row of %s in\n%s", row.Name, plain)
		}
		if title := "\n" + row.Name + ": " + row.Title + "\n"; !strings.Contains(drawn, title) {
			t.Errorf("%q is not in\n%s", title, drawn)
		}
	}
	if bars := strings.Count(drawn, strings.Repeat("█", 50)); strings.Contains(plain, "█") || bars < len(r.Rows) {
		t.Errorf("%d bars of full length in\n%s", bars, drawn)
	}
}

// line is a line of Go's benchmark format: a name, how often, and values with their units.
var line = regexp.MustCompile(`^(Benchmark[A-Z][^\s]*)-[1-9][0-9]*\t[1-9][0-9]*\t[0-9]+(\.[0-9]+)? ns/op` +
	`\t[1-9][0-9]* p50-ns\t[1-9][0-9]* p90-ns\t[1-9][0-9]* p99-ns\t[0-9]+\.[0-9]+ x-exchange(\t[01]\.[0-9]+ jain)?$`)

func checkGo(t *testing.T, r *bench.Result) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteGo(&b); err != nil {
		t.Fatal(err)
	}
	count, config := map[string]int{}, regexp.MustCompile(`^[a-z]+: \S+$`)
	for _, text := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		switch m := line.FindStringSubmatch(text); {
		case m != nil:
			count[m[1]]++
			if (m[3] != "") != strings.HasPrefix(m[1], "BenchmarkOne/") {
				t.Errorf("%q", text)
			}
		case !config.MatchString(text):
			t.Errorf("%q is not of the format", text)
		}
	}
	for _, name := range []string{"Exchange", "Pair", "Names/64", "One/2", "One/16", "One/128-goroutines"} {
		if count["Benchmark"+name] != 2 {
			t.Errorf("%s: %d lines of 2", name, count["Benchmark"+name])
		}
	}
}

func page(t *testing.T, r *bench.Result) (path, text string) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "bench.html")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, b.String()
}

func checkPage(t *testing.T, r *bench.Result) {
	t.Helper()
	_, text := page(t, r)
	for _, word := range []string{"http:", "https:", `src="`, "url(", "<script", "@import", "<link", "NaN", "Inf",
		"ZgotmplZ"} {
		if strings.Contains(text, word) {
			t.Errorf("the page contains %q", word)
		}
	}
	if n := strings.Count(text, "<svg "); n != len(r.Rows) || !strings.Contains(text, "prefers-color-scheme: dark") ||
		strings.Count(text, `<rect class="bar"`) < n || strings.Count(text, "<tr>") != 1+n {
		t.Errorf("%d pictures in\n%s", n, text)
	}
}

// The page looks well in a browser, also where it has little room.
func TestPageInBrowser(t *testing.T) {
	url := "memory:"
	r, err := bench.Run(t.Context(), bench.Options{Store: opened(t, url), URL: url, Duration: 50 * time.Millisecond,
		Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	path, _ := page(t, r)
	w := browser.Open(t)
	for name, view := range browser.Views {
		w.Show(path, "", view)
		w.Look("bench-"+name, view)
		var hidden int // on paper nobody can scroll
		w.Ask(`Math.max(...[...document.querySelectorAll(".wide")].map(e => e.scrollWidth - e.clientWidth))`, &hidden)
		if view.Print && hidden > 0 {
			t.Errorf("%d pixels are beyond the edge of the paper", hidden)
		}
	}
}

// When its context ends, Run returns the cause, keeps what it has measured, and frees all names.
func TestInterrupt(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "locks.db")
	st := opened(t, url)
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	busy := make(chan bool, 1)
	r, err := bench.Run(ctx, bench.Options{Store: st, URL: url, Duration: 3 * time.Second,
		Scenario: regexp.MustCompile("one/16"), Say: func(text string) {
			if !strings.HasPrefix(text, "one/16") {
				return
			}
			go func() { // interrupt it when the name is held and others wait
				defer cancel(stop)
				for ctx.Err() == nil {
					list, err := st.List(ctx, "bench/", "", 10)
					if err == nil && len(list) == 1 && len(list[0].Holders) == 1 && list[0].Waiting > 0 {
						busy <- true
						return
					}
				}
			}()
		}})
	if !errors.Is(err, stop) || r.Complete || len(find(t, r, "exchange").Rounds) != 1 ||
		len(find(t, r, "one/16").Rounds) != 0 || len(r.Notes) > 0 {
		t.Errorf("%v: %+v", err, r)
	}
	select {
	case <-busy:
	default:
		t.Error("it was not interrupted while the name was busy")
	}
	if !strings.Contains(r.Text(false), "incomplete") {
		t.Error(r.Text(false))
	}
	free(t, st)
}

// A store that fails in the middle: the workloads before it have figures, the one under way an
// error, and those after it did not run.
func TestStoreFails(t *testing.T) {
	redis := testenv.Redis(t)
	st, err := open.Open(t.Context(), redis.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }() // its server is gone
	r, err := bench.Run(t.Context(), bench.Options{Store: st, URL: redis.URL(), Duration: 200 * time.Millisecond,
		Scenario: regexp.MustCompile("pair|one/"), Say: func(text string) {
			if strings.HasPrefix(text, "one/2:") {
				redis.Kill()
			}
		}})
	if !errors.Is(err, holdfast.ErrUnavailable) || r.Complete || !r.Measured() || len(r.Notes) != 1 ||
		!strings.Contains(r.Notes[0], "expires within 15s") {
		t.Errorf("%v: %+v", err, r)
	}
	if two := find(t, r, "one/2"); !errors.Is(two.Err, holdfast.ErrUnavailable) || two.Errors == 0 {
		t.Errorf("%+v", two)
	}
	if pair := find(t, r, "pair"); pair.Err != nil || len(pair.Rounds) != 1 {
		t.Errorf("%+v", pair)
	}
	for _, name := range []string{"one/16", "one/128-goroutines"} {
		if row := find(t, r, name); row.Err == nil || len(row.Rounds) != 0 || row.Errors != 0 {
			t.Errorf("%+v", row)
		}
	}
	text := r.Text(true)
	if !strings.Contains(text, "\none/16: not measured") || !strings.Contains(text, "\none/2: ") {
		t.Error(text)
	}
	var b bytes.Buffer
	if err := r.WriteGo(&b); err != nil || !strings.Contains(b.String(), "\n--- FAIL: BenchmarkOne/2\n    ") {
		t.Errorf("%v: %s", err, b.String())
	}
	page(t, r)
}

// Wrong options are refused before the store is asked.
func TestInvalid(t *testing.T) {
	url := "memory:"
	for what, o := range map[string]bench.Options{
		"duration":         {Duration: time.Millisecond},
		"number of rounds": {Count: -1},
		"scenario":         {Scenario: regexp.MustCompile("^two$")},
	} {
		o.Store, o.URL = opened(t, url), url
		if r, err := bench.Run(t.Context(), o); r != nil || !errors.Is(err, holdfast.ErrInvalid) ||
			!strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v, %v", what, r, err)
		}
	}
}
