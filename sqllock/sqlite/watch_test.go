package sqlite

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A hint names the one record that has changed, whichever process has changed it, and renewals and
// readings are no changes.
func TestWatchNamesTheRecord(t *testing.T) {
	path := storePath(t)
	b := openTest(t, path, nil)
	s, err := b.Open(t.Context(), driver.SessionConfig{ID: "s", TTL: time.Minute})
	must(t, err)
	take := func(name string, mode driver.Mode, id string) driver.Hold {
		t.Helper()
		r := &driver.Request{ID: id, Name: name, Mode: mode, N: 1}
		reply, err := s.Acquire(t.Context(), r)
		must(t, err)
		return driver.Hold{Name: name, ID: id, Token: reply.Token}
	}
	take("p/other", driver.Exclusive, "other")
	ctx, cancel := context.WithCancel(t.Context())
	hints, ended := make(chan string, 100), make(chan error, 1)
	go func() { ended <- b.Watch(ctx, "p/", func(name string) { hints <- name }) }()
	hint := func(want ...string) {
		t.Helper()
		var got []string
		for range want {
			select {
			case name := <-hints:
				got = append(got, name)
			case <-time.After(30 * time.Second):
				t.Fatalf("hints %q; want %q", got, want)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("hints %q; want %q", got, want)
		}
	}
	hint("")
	x := take("p/x", driver.Exclusive, "x")
	hint("p/x")
	take("outside", driver.Exclusive, "outside")
	reader := take("p/r", driver.Shared, "r")
	hint("p/r")
	if _, err := s.Renew(t.Context(), []driver.Hold{x, reader}); err != nil {
		t.Fatal(err)
	}
	_, err = b.Inspect(t.Context(), "p/x")
	must(t, err)
	must(t, s.Adopt(t.Context(), reader, "r2", ""))
	hint("p/r")
	must(t, s.Release(t.Context(), x, 0))
	hint("p/x")
	execOn(t, b.st, `DELETE FROM lock WHERE name = ?`, []byte("p/other"))
	hint("p/other")
	cancel()
	if err := <-ended; err == nil || len(hints) > 0 {
		t.Errorf("Watch: %v; %d hints more", err, len(hints))
	}
	must(t, closed(b))
	if err := b.Watch(t.Context(), "", func(string) {}); !driver.IsFinal(err) {
		t.Errorf("Watch of a closed store: %v", err)
	}
}

// BenchmarkWatchTick measures what a watcher of a quiet file costs, each 20 ms.
func BenchmarkWatchTick(b *testing.B) {
	s := openTest(b, storePath(b), nil)
	for b.Loop() {
		if _, err := s.dataVersion(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
