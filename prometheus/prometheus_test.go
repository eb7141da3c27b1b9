package prometheus_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
	holdprom "github.com/holdfast-lock/holdfast/prometheus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

func open(t *testing.T, store driver.Backend, o *holdfast.Observer) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(t.Context(), store, &holdfast.Config{TTL: ttl, Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

func lock(t *testing.T, c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Lease {
	t.Helper()
	l, err := c.Mutex(name, opts...).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// scraper is a registry with the metrics.
type scraper struct {
	*testing.T
	registry *prom.Registry
}

func newScraper(t *testing.T, m *holdprom.Metrics) *scraper {
	s := &scraper{t, prom.NewPedanticRegistry()} // it checks what is collected
	s.registry.MustRegister(m)
	return s
}

// want compares the samples of some metrics, without comments, buckets, and sums but those of waits.
func (s *scraper) want(metrics []string, lines string) {
	s.Helper()
	synctest.Wait()
	text, err := testutil.GatherAndFormat(s.registry, expfmt.TypeTextPlain, metrics...)
	if err != nil {
		s.Fatal(err)
	}
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "_bucket{") &&
			(!strings.Contains(line, "_sum{") || strings.Contains(line, "acquire")) {
			got = append(got, line)
		}
	}
	if g, w := strings.Join(got, "\n"), strings.TrimSpace(lines); g != w {
		s.Errorf("got:\n%s\nwant:\n%s", g, w)
	}
}

// The text that a registry exports says what the clients did, and what they do now.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := holdprom.New(nil)
		s := newScraper(t, m)
		store := memlock.New()
		conn := drivertest.Faulty(store)
		c, other := open(t, conn, m.Observer()), open(t, store, nil)
		ctx := t.Context()
		synctest.Wait()
		s.want([]string{"holdfast_clients", "holdfast_clients_healthy", "holdfast_held", "holdfast_unanswered_seconds",
			"holdfast_offered", "holdfast_observer_dropped_total"}, `
holdfast_clients{backend="memory"} 1
holdfast_clients_healthy{backend="memory"} 1
holdfast_observer_dropped_total{backend="memory"} 0
holdfast_offered{backend="memory"} 0
holdfast_unanswered_seconds{backend="memory"} 0
`)
		// Two leases of a class and one of another; a call that waits.
		a, b := lock(t, c, "order/1"), lock(t, c, "order/2")
		p, err := c.Semaphore("pool", 5).Acquire(ctx, 3)
		if err != nil {
			t.Fatal(err)
		}
		taken := lock(t, other, "order/3")
		e, err := c.Election("boss").Campaign(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *holdfast.Lease)
		go func() { got <- lock(t, c, "order/3") }()
		time.Sleep(time.Second)
		gauges := []string{"holdfast_held", "holdfast_waiting", "holdfast_held_oldest_seconds",
			"holdfast_wait_oldest_seconds", "holdfast_permits", "holdfast_leader"}
		s.want(gauges, `
holdfast_held{backend="memory",class="boss",mode="exclusive"} 1
holdfast_held{backend="memory",class="order/*",mode="exclusive"} 2
holdfast_held{backend="memory",class="pool",mode="permits"} 1
holdfast_held_oldest_seconds{backend="memory",class="boss",mode="exclusive"} 1
holdfast_held_oldest_seconds{backend="memory",class="order/*",mode="exclusive"} 1
holdfast_held_oldest_seconds{backend="memory",class="pool",mode="permits"} 1
holdfast_leader{backend="memory",class="boss"} 1
holdfast_permits{backend="memory",class="pool"} 3
holdfast_wait_oldest_seconds{backend="memory",class="boss",mode="exclusive"} 0
holdfast_wait_oldest_seconds{backend="memory",class="order/*",mode="exclusive"} 1
holdfast_wait_oldest_seconds{backend="memory",class="pool",mode="permits"} 0
holdfast_waiting{backend="memory",class="boss",mode="exclusive"} 0
holdfast_waiting{backend="memory",class="order/*",mode="exclusive"} 1
holdfast_waiting{backend="memory",class="pool",mode="permits"} 0
`)
		_ = taken.Release()
		d := <-got
		_, _ = c.Mutex("order/1").TryLock(ctx)
		_, _ = c.Semaphore("order/1", 2).Acquire(ctx, 1)
		_ = c.Break(ctx, "order/2", b.Token(), "")
		_ = c.Break(ctx, "order/2", b.Token(), "")
		time.Sleep(ttl / 3) // a renewal, which notices that
		_ = b.Release()
		_, _, _ = d.HandOff()
		short := lock(t, c, "short", holdfast.MaxHold(time.Second))
		<-short.Done()
		heal := conn.Cut()
		<-a.Done() // lost, as all others
		<-e.Done()
		heal()
		time.Sleep(ttl)
		_ = p.Release()
		s.want([]string{"holdfast_acquire_duration_seconds", "holdfast_breaks_total", "holdfast_hold_duration_seconds",
			"holdfast_leader_changes_total", "holdfast_lost_total", "holdfast_renewals_total", "holdfast_lease_margin_seconds"}, `
holdfast_acquire_duration_seconds_sum{backend="memory",class="boss",mode="exclusive",outcome="granted"} 0
holdfast_acquire_duration_seconds_count{backend="memory",class="boss",mode="exclusive",outcome="granted"} 1
holdfast_acquire_duration_seconds_sum{backend="memory",class="order/*",mode="exclusive",outcome="granted"} 1
holdfast_acquire_duration_seconds_count{backend="memory",class="order/*",mode="exclusive",outcome="granted"} 3
holdfast_acquire_duration_seconds_sum{backend="memory",class="order/*",mode="exclusive",outcome="held"} 0
holdfast_acquire_duration_seconds_count{backend="memory",class="order/*",mode="exclusive",outcome="held"} 1
holdfast_acquire_duration_seconds_sum{backend="memory",class="order/*",mode="permits",outcome="refused"} 0
holdfast_acquire_duration_seconds_count{backend="memory",class="order/*",mode="permits",outcome="refused"} 1
holdfast_acquire_duration_seconds_sum{backend="memory",class="pool",mode="permits",outcome="granted"} 0
holdfast_acquire_duration_seconds_count{backend="memory",class="pool",mode="permits",outcome="granted"} 1
holdfast_acquire_duration_seconds_sum{backend="memory",class="short",mode="exclusive",outcome="granted"} 0
holdfast_acquire_duration_seconds_count{backend="memory",class="short",mode="exclusive",outcome="granted"} 1
holdfast_breaks_total{backend="memory",class="order/*",outcome="ok"} 1
holdfast_breaks_total{backend="memory",class="order/*",outcome="refused"} 1
holdfast_hold_duration_seconds_count{backend="memory",class="boss",ended="lost",mode="exclusive"} 1
holdfast_hold_duration_seconds_count{backend="memory",class="order/*",ended="handed_off",mode="exclusive"} 1
holdfast_hold_duration_seconds_count{backend="memory",class="order/*",ended="lost",mode="exclusive"} 2
holdfast_hold_duration_seconds_count{backend="memory",class="pool",ended="lost",mode="permits"} 1
holdfast_hold_duration_seconds_count{backend="memory",class="short",ended="lost",mode="exclusive"} 1
holdfast_leader_changes_total{backend="memory",class="boss"} 1
holdfast_lease_margin_seconds_count{backend="memory"} 1
holdfast_lost_total{backend="memory",class="boss",reason="unreachable"} 1
holdfast_lost_total{backend="memory",class="order/*",reason="broken"} 1
holdfast_lost_total{backend="memory",class="order/*",reason="unreachable"} 1
holdfast_lost_total{backend="memory",class="pool",reason="unreachable"} 1
holdfast_lost_total{backend="memory",class="short",reason="max_hold"} 1
holdfast_renewals_total{backend="memory",outcome="failed"} 2
holdfast_renewals_total{backend="memory",outcome="ok"} 4
`)
		s.want(gauges, `
holdfast_held{backend="memory",class="boss",mode="exclusive"} 0
holdfast_held{backend="memory",class="order/*",mode="exclusive"} 0
holdfast_held{backend="memory",class="pool",mode="permits"} 0
holdfast_held_oldest_seconds{backend="memory",class="boss",mode="exclusive"} 0
holdfast_held_oldest_seconds{backend="memory",class="order/*",mode="exclusive"} 0
holdfast_held_oldest_seconds{backend="memory",class="pool",mode="permits"} 0
holdfast_leader{backend="memory",class="boss"} 0
holdfast_permits{backend="memory",class="pool"} 0
holdfast_wait_oldest_seconds{backend="memory",class="boss",mode="exclusive"} 0
holdfast_wait_oldest_seconds{backend="memory",class="order/*",mode="exclusive"} 0
holdfast_wait_oldest_seconds{backend="memory",class="pool",mode="permits"} 0
holdfast_waiting{backend="memory",class="boss",mode="exclusive"} 0
holdfast_waiting{backend="memory",class="order/*",mode="exclusive"} 0
holdfast_waiting{backend="memory",class="pool",mode="permits"} 0
`)
		_ = c.Close(ctx)
		s.want([]string{"holdfast_clients", "holdfast_clients_healthy"}, `
holdfast_clients{backend="memory"} 0
holdfast_clients_healthy{backend="memory"} 0
`)
	})
}

// High cardinality of names makes few series.
func TestCardinality(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := holdprom.New(&holdprom.Options{Class: func(name string) string { return name }, MaxClasses: 5})
		s := newScraper(t, m)
		c := open(t, memlock.New(), m.Observer())
		for i := range 200 {
			_ = lock(t, c, fmt.Sprint("name-", i)).Release()
			lock(t, c, fmt.Sprint("kept-", i))
		}
		synctest.Wait()
		for _, name := range []string{"holdfast_acquire_duration_seconds", "holdfast_hold_duration_seconds",
			"holdfast_held"} {
			if n, err := testutil.GatherAndCount(s.registry, name); err != nil || n < 2 || n > 6 {
				t.Errorf("%d series of %s, %v", n, name, err)
			}
		}
	})
}

// A program serves the metrics by HTTP, while they change. All have names and helps as the tools of
// Prometheus want them.
func TestScrape(t *testing.T) {
	m := holdprom.New(nil)
	registry := prom.NewPedanticRegistry()
	registry.MustRegister(m)
	server := httptest.NewServer(promhttp.HandlerFor(registry,
		promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	c := open(t, memlock.New(), m.Observer())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			_ = lock(t, c, fmt.Sprint("order/", i%7)).Release()
		}
	}()
	for range 20 {
		get(t, server.URL)
	}
	<-done
	lock(t, c, "x")
	text := get(t, server.URL)
	if !strings.Contains(text, `holdfast_held{backend="memory",class="x",mode="exclusive"} 1`+"\n") ||
		!strings.Contains(text, `holdfast_acquire_duration_seconds_count{backend="memory",class="order/*",mode="exclusive",outcome="granted"} 300`+"\n") {
		t.Error(text)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Error(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r.Status, err, string(text))
	}
	return string(text)
}
