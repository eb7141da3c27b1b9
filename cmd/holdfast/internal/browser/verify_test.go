package browser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/browser"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
)

// TestVerify: verify's page of a violation looks well, and the violation is on its first screen. (Package
// lab tests its own page, of rows that it has run.)
func TestVerify(t *testing.T) {
	read := func(name string) []history.Event {
		t.Helper()
		events, err := history.ReadFiles("../history/testdata/" + name + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
	long := read("S1_two_leases")
	for i := range long {
		if long[i].Name != "" { // it has no place for a line break
			long[i].Name = "verify/" + strings.Repeat("31415926", 10) + "/mutex-1"
		}
	}
	w := browser.Open(t)
	for name, events := range map[string][]history.Event{
		"long-name": long, "never-free": read("L1_never"), "busy": busy(), "permits": permits(),
	} {
		r := history.Check(events, history.Options{})
		if len(r.Violations()) == 0 {
			t.Fatal(r)
		}
		file, err := os.Create(filepath.Join(t.TempDir(), name+".html"))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Draw(file, r.Violations()[0]); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		w.Check(file.Name(), "", name)
	}
}

const ms = int64(time.Millisecond)

// one is a client that has the lock of e from a time on, for so long.
func one(e history.Event, from, length int64) (events []history.Event) {
	e.TTL, e.Wait = time.Second, true
	e.Name = "verify/dd305e82/mutex/1"
	for _, k := range []struct {
		kind history.Kind
		t    int64
	}{{history.Acquire, from - ms}, {history.Granted, from}, {history.Release, from + length},
		{history.Released, from + length + ms}} {
		if e.Kind, e.T = k.kind, k.t; k.kind == history.Released {
			e.Result = history.Accepted
		}
		events = append(events, e)
	}
	return events
}

// busy is a history of many clients that take turns, until one gets the lock inside the lease of another.
func busy() (events []history.Event) {
	for i := range int64(60) {
		begin := (1 + 10*i) * ms
		if i >= 40 {
			begin -= 5 * ms // the 40th comes too early
		}
		events = append(events, one(history.Event{Client: fmt.Sprintf("p%d.1/%d", i%4, i%3),
			ID: fmt.Sprintf("p%d.1-%d", i%4, i), Token: uint64(1795477717042723 + i)}, begin, 8*ms)...)
	}
	return events
}

// permits is a history in which nine clients have eight permits.
func permits() (events []history.Event) {
	for i := range int64(9) {
		events = append(events, one(history.Event{Client: fmt.Sprintf("p%d.1/0", i), ID: fmt.Sprintf("p%d.1-1", i),
			Mode: driver.Permits, N: 1, Limit: 8, Token: uint64(1795477717042723 + i)}, (1+10*i)*ms, 200*ms)...)
	}
	return events
}
