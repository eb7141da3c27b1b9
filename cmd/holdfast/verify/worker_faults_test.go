//go:build unix

package verify

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// Workers record what happened, and end in order, after any fault of theirs or of their way to the
// store.
func TestWorkersWithFaults(t *testing.T) {
	s := newScene(t)
	r := testenv.Redis(t)
	rec, err := history.Create(filepath.Join(s.dir, "faults.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var children []*child
	var ways []*testenv.TCPProxy
	job := func(i, runNumber int) Job {
		j := s.job(strings.Replace(r.URL(), r.Addr, ways[i].Addr, 1))
		j.Process, j.Loops, j.Pause = fmt.Sprintf("p%d.%d", i, runNumber), 10, 30*time.Millisecond
		return j
	}
	for i := range 3 {
		ways = append(ways, testenv.Proxy(t, r.Addr))
		children = append(children, start(t, job(i, 1)))
	}
	for _, c := range children {
		c.ready()
	}
	busy := func(c *child) {
		t.Helper()
		c.until("it has locks and waits for some", func(p Progress) bool { return p.Waiting > 0 && p.Holding > 0 })
	}
	faults := 0
	during := func(target, kind string, f func(), heal func(), d, missesPushes time.Duration) {
		t.Helper()
		for _, c := range children {
			busy(c)
		}
		faults++
		id := fmt.Sprint("f", faults)
		rec.Record(history.Event{Kind: history.Fault, ID: id, Target: target, Text: kind})
		f()
		time.Sleep(d) // the length of the fault
		heal()
		rec.Record(history.Event{T: history.Now() + int64(missesPushes), Kind: history.Healed, ID: id})
	}
	for _, f := range []struct {
		kind string
		f    func()
	}{{"reset", ways[0].Reset}, {"refuse", ways[0].Refuse}, {"hole", ways[0].Hole}, {"drop replies", ways[0].DropReplies},
		{"delay", func() { ways[0].Delay(50 * time.Millisecond) }}} {
		during("p0.1", f.kind, f.f, ways[0].Heal, 1500*time.Millisecond, reconnectTime)
	}
	signal := func(c *child, s syscall.Signal) func() {
		return func() {
			if err := c.cmd.Process.Signal(s); err != nil {
				t.Error(err)
			}
		}
	}
	during("p1.1", history.FaultStop, signal(children[1], syscall.SIGSTOP), signal(children[1], syscall.SIGCONT),
		2500*time.Millisecond, 0)
	busy(children[2])
	signal(children[2], syscall.SIGKILL)()
	rec.Record(history.Event{Kind: history.Died, Client: "p2.1"}) // no call of the worker begins after it
	if text := children[2].ended(); !strings.Contains(text, "killed") {
		t.Errorf("a worker that was killed: %q", text)
	}
	children[2] = start(t, job(2, 2))
	children[2].ready()
	for _, c := range children {
		busy(c)
	}
	for _, c := range children {
		c.finish()
	}
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
	events := s.events(t)
	report := history.Check(events, history.Options{MinGrants: 200, MinFaults: faults, MinWaiting: 1, Slack: busySlack})
	t.Logf("%s", report)
	if report.Outcome != history.Clean {
		t.Error("the history is not clean")
	}
	lost, unanswered := 0, 0
	for _, e := range events {
		switch e.Kind {
		case history.Lost:
			lost++
		case history.Unanswered:
			unanswered++
		}
	}
	t.Logf("%d leases lost, %d calls not answered", lost, unanswered)
	if unanswered == 0 {
		t.Error("every call was answered: the faults had no effect")
	}
}
