package main

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// redisBed starts a server for the measurements of a test.
func redisBed(t *testing.T) *testbed {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test starts a redis-server")
	}
	srv, err := startServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.stop)
	return &testbed{server: srv, dir: t.TempDir(), duration: duration()}
}

// TestEveryLibrary runs each library, alone and contended, against a real server.
func TestEveryLibrary(t *testing.T) {
	b := redisBed(t)
	for _, l := range libraries() {
		t.Run(l.name, func(t *testing.T) {
			if err := b.server.flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			m, err := runPair(t.Context(), b, l)
			if err != nil {
				t.Fatal(err)
			}
			// The count of commands is exact, except for a renewal or a connection's greeting.
			sent := about(m, "sent", 2)
			if l.sticky {
				sent = m["sent"] <= 0.1
			}
			if !sent || m["calls"] < m["sent"] || m["p50"] <= 0 || m["p99"] < m["p50"] {
				t.Errorf("pair: %v", m)
			}
			if !l.waits {
				return
			}
			m, err = runOne(t.Context(), b, l, 3, 3, 0)
			if err != nil {
				t.Fatal(err)
			}
			if m["violations"] != 0 || m["n"] == 0 || !few(m) && !l.sticky && m["sent"] < 1.5 {
				t.Errorf("one: %v", m)
			}
		})
	}
}

// TestRedisson runs Redisson, alone and contended, against a real server.
func TestRedisson(t *testing.T) {
	if !testenv.Deep() {
		return // scripts/deep.sh runs it
	}
	b := redisBed(t)
	if _, err := runRedisson(t.Context(), b, 1, 1); err == nil {
		t.Error("figures of a program that was not built")
	}
	var err error
	if b.java, err = buildJava(t.Context(), b.dir); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 3} {
		m, err := runRedisson(t.Context(), b, n, n)
		if err != nil {
			t.Fatal(err)
		}
		if m["violations"] != 0 || m["n"] == 0 || m["calls"] < 4 || m["p50"] <= 0 {
			t.Errorf("%d clients: %v", n, m)
		}
	}
}

// TestSharing: readers of one client need few commands, and two each if they do not share.
func TestSharing(t *testing.T) {
	b := redisBed(t)
	for _, s := range sharingScenarios()[0].subjects {
		m, err := measured(b, func() (metrics, error) { return s.run(t.Context(), b) })
		if err != nil {
			t.Fatal(err)
		}
		// A measurement begins and ends in the middle of exchanges of up to 128 readers.
		if shared := !strings.HasSuffix(s.name, "-fair"); shared != (m["sent"] < 1) {
			t.Errorf("%s: %v", s.name, m)
		}
	}
}
