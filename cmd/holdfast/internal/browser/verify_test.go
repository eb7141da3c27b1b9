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
	for name, events := range map[string][]history.Event{"long-name": long, "never-free": read("L1_never"), "busy": busy()} {
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

// busy is a history of many clients that take turns, until one gets the lock inside the lease of another.
func busy() (events []history.Event) {
	const ms = int64(time.Millisecond)
	for i := range int64(60) {
		e := history.Event{Client: fmt.Sprintf("p%d.1/%d", i%4, i%3), ID: fmt.Sprintf("p%d.1-%d", i%4, i), Name: "verify/dd305e82/mutex/1"}
		add := func(t int64, kind history.Kind, token uint64) {
			e := e
			if e.T, e.Kind, e.Token = t, kind, token; kind == history.Acquire {
				e.Wait, e.TTL = true, time.Second
			}
			events = append(events, e)
		}
		begin := (1 + 10*i) * ms
		if i >= 40 {
			begin -= 5 * ms // the 40th comes too early
		}
		add(begin-ms, history.Acquire, 0)
		add(begin, history.Granted, uint64(1795477717042723+i))
		add(begin+8*ms, history.Release, 0)
		e.Result = history.Accepted
		add(begin+9*ms, history.Released, 0)
	}
	return events
}
