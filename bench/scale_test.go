package main

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestScale runs the smallest size of each, on every store.
func TestScale(t *testing.T) {
	b := &testbed{dir: t.TempDir(), duration: duration()}
	if !testing.Short() {
		srv, err := startServer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer srv.stop()
		b.server = srv
	}
	for _, sc := range scaleScenarios() {
		t.Run(sc.name, func(t *testing.T) {
			if sc.store == "redis" && b.server == nil {
				t.Skip("-short: this needs a redis-server")
			}
			if b.server != nil {
				if err := b.server.flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			m, err := measured(b, func() (metrics, error) { return sc.subjects[0].run(t.Context(), b) })
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range sc.columns {
				if v, ok := m[c.key]; !ok || math.IsNaN(v) || v < 0 || v == 0 && !few(m) && c.key != "violations" {
					t.Errorf("%s: %v", c.head, v)
				}
			}
			if m["violations"] != 0 || m["n"] < 1 {
				t.Errorf("%v", m)
			}
			// A grant is one request and one release; some readers' grants are incomplete at the
			// ends. The time of scripts is not compared with the server's CPU. A script that loses
			// its core counts on, so on a busy machine the part is larger than the whole.
			if sc.store == "redis" && !few(m) && (m["sent"] < 1.9 || m["sent"] > 2.1 || m["calls"] < 1 || m["srvcpu"] <= 0 ||
				m["scripts"] <= 0) {
				t.Errorf("%v", m)
			}
		})
	}
}

// TestScaleDetectsFaults: the scenarios detect a store that breaks a promise.
func TestScaleDetectsFaults(t *testing.T) {
	st := scaleStores()[2]
	on := func(f func(*storeSessions)) {
		t.Helper()
		if _, err := onStore(t.Context(), &testbed{dir: t.TempDir()}, st,
			func(s *storeSessions) (metrics, error) { f(s); return nil, nil }); err != nil {
			t.Error(err)
		}
	}
	mutex := driver.Request{Mode: driver.Exclusive, N: 1, Wait: true}
	on(func(s *storeSessions) {
		if err := (&queue{t: s, like: mutex}).fill(t.Context(), 2, 0); err == nil {
			t.Error("a mutex with two holders was not detected")
		}
	})
	on(func(s *storeSessions) {
		q := &queue{t: s, like: mutex}
		if err := q.fill(t.Context(), 1, 5); err != nil {
			t.Fatal(err)
		}
		if err := q.step(t.Context()); err != nil || q.violations != 0 {
			t.Fatalf("a correct step: %v, %v violations", err, q.violations)
		}
		q.last = math.MaxUint64
		if err := q.step(t.Context()); err != nil || q.violations != 1 {
			t.Errorf("a token that is not larger: %v, %v violations", err, q.violations)
		}
		passed := make(chan uint64, 1)
		passed <- 0
		q.waiters[0].wake = passed
		if err := q.step(t.Context()); !errors.Is(err, errPassedOver) {
			t.Errorf("the first waiter gets nothing: %v", err)
		}
	})
	on(func(s *storeSessions) {
		r := &readers{t: s}
		r.reading.Store(1) // at the same time as the writer
		err := r.write(t.Context(), 0, func(time.Duration) (bool, error) { return false, nil })
		if err != nil || r.violations.Load() != 1 {
			t.Errorf("a reader at the same time as the writer: %v, %d violations", err, r.violations.Load())
		}
	})
}
