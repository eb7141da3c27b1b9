package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"

	"github.com/holdfast-lock/holdfast/open"
)

// recorded is a history, and the number of its events of each kind.
type recorded struct {
	events []history.Event
	kinds  map[history.Kind]int
}

// busySlack is for late machines: this test is not about their speed.
const busySlack = 8 * time.Second

// clean runs two workers at a store and has the history judged.
func clean(t *testing.T, url string, change func(*Job), except ...history.Class) recorded {
	t.Helper()
	s := newScene(t)
	var children []*child
	for i := range 2 {
		j := s.job(url)
		j.Process, j.TTL = fmt.Sprintf("p%d.1", i), 2*time.Second
		if change != nil {
			change(&j)
		}
		children = append(children, start(t, j))
	}
	early := map[*child]int64{} // errors of connections: on a busy machine the first ones may fail
	for _, c := range children {
		c.ready()
		p, _ := c.next()
		early[c] = p.Errors
	}
	s.has(t, history.Queued, history.Granted, history.Refused, history.Cancelled, history.Renewed, history.Held,
		history.Released, history.Writing)
	failed := int64(0)
	for _, c := range children {
		p := c.until("locks are waited for", func(p Progress) bool {
			return p.Grants > 200 && p.Waiting > 0 && p.Holding > 0
		})
		if p.Errors > 0 {
			t.Logf("%d calls failed: %s", p.Errors, p.LastError)
		}
		if !strings.Contains(p.LastError, "the fenced resource") { // else this process answered late
			failed += p.Errors - early[c]
		}
	}
	for _, c := range children {
		c.finish()
	}
	events := s.events(t)
	r := history.Check(events, history.Options{MinGrants: 200, MinRate: 1, Slack: busySlack, Except: except})
	t.Logf("%s", r)
	if r.Outcome != history.Clean {
		t.Error("the history is not clean")
	}
	kinds, open := map[history.Kind]int{}, 0 // open: releases and downgrades without an answer
	for _, e := range events {
		kinds[e.Kind]++
		if (e.Kind == history.Released || e.Kind == history.Downgraded) && e.Result == history.Unknown {
			open++
		}
		if e.Kind == history.Granted && (e.From == 0 || e.From > e.T) {
			t.Errorf("a grant without proof: %+v", e)
		}
	}
	// A busy machine causes calls without an answer in time, and lost leases.
	if failed > 0 && kinds[history.Unanswered]+kinds[history.Lost]+open == 0 {
		t.Errorf("%d calls failed", failed)
	}
	for _, k := range []history.Kind{history.Begin, history.Read, history.Write, history.Closed, history.Gauge,
		history.Final} {
		if kinds[k] == 0 {
			t.Errorf("there is no event of kind %s", k)
		}
	}
	t.Logf("%d grants; %d calls were not answered, %d leases lost", kinds[history.Granted], kinds[history.Unanswered],
		kinds[history.Lost])
	return recorded{events, kinds}
}

func TestWorkersRedis(t *testing.T) {
	if k := clean(t, testenv.Redis(t).URL(), nil).kinds; k[history.Downgraded] == 0 {
		t.Error("no lease was downgraded")
	}
}

func TestWorkersSQLite(t *testing.T) {
	clean(t, "sqlite:"+filepath.Join(t.TempDir(), "locks.db"), nil)
}

func TestWorkersMutexOnly(t *testing.T) {
	if k := clean(t, testenv.Redis(t).URL(), func(j *Job) { j.Mix = MixMutex }).kinds; k[history.Downgraded] != 0 {
		t.Error("there are locks other than mutexes")
	}
}

// Stores that lack some kinds of locks are used for the kinds that they have.
func TestWorkersOtherStores(t *testing.T) {
	var addrs []string
	for range 3 {
		addrs = append(addrs, testenv.Redis(t).Addr)
	}
	type deployment struct {
		url               string
		shared, semaphore bool
		except            []history.Class
	}
	all := []deployment{
		// Readers that are let in together get their votes, and so their tokens, in any order.
		{"redis+quorum://" + strings.Join(addrs, ","), true, false, []history.Class{history.L3}},
	}
	if testenv.Deep() {
		z := testenv.ZooKeeper(t, "maxSessionTimeout=40000")
		all = append(all, deployment{z.URL(), true, true, nil},
			// It promises no order.
			deployment{z.URL() + "/single?protocol=single", false, false, []history.Class{history.L3}},
			deployment{"mysql://root@" + testenv.MariaDB(t).Addr + "/test", true, true, nil},
			deployment{testenv.Postgres(t).DSN("postgres"), true, true, nil})
	}
	for _, store := range all {
		if _, err := open.Init(t.Context(), store.url); err != nil {
			t.Fatal(err)
		}
		modes := map[driver.Mode]int{}
		ids := map[string]driver.Mode{}
		for _, e := range clean(t, store.url, func(j *Job) { j.TTL = 2 * time.Second }, store.except...).events {
			switch e.Kind {
			case history.Acquire:
				ids[e.ID] = max(e.Mode, driver.Exclusive)
			case history.Granted:
				modes[ids[e.ID]]++
			}
		}
		if modes[driver.Exclusive] == 0 || (modes[driver.Shared] > 0) != store.shared ||
			(modes[driver.Permits] > 0) != store.semaphore {
			t.Errorf("%s: grants by mode: %v", store.url, modes)
		}
	}
}

// A worker without its coordinator ends.
func TestWorkerEndsWithItsInput(t *testing.T) {
	s := newScene(t)
	c := start(t, s.job("sqlite:"+filepath.Join(t.TempDir(), "locks.db")))
	c.ready()
	c.until("a lock is held", func(p Progress) bool { return p.Grants > 0 })
	if err := c.in.Close(); err != nil {
		t.Fatal(err)
	}
	if text := c.ended(); !strings.Contains(text, "the coordinator has ended") {
		t.Errorf("its end: %q", text)
	}
	if events := s.events(t); len(events) == 0 {
		t.Error("it left no history")
	}
}

// A Finish counts, even if the coordinator has ended when the worker reads it.
func TestWorkerFinishThenEnd(t *testing.T) {
	s := newScene(t)
	text, err := json.Marshal(s.job("sqlite:" + filepath.Join(t.TempDir(), "locks.db")))
	if err != nil {
		t.Fatal(err)
	}
	c := startWith(t, string(text)+"\n"+Finish+"\n")
	_ = c.in.Close()
	if text := c.ended(); text != "" {
		t.Error(text)
	}
}

// A worker waits for an absent store, until Finish.
func TestWorkerWithoutStore(t *testing.T) {
	s := newScene(t)
	j := s.job("redis://u:c4nary@127.0.0.1:1")
	c := start(t, j)
	c.stderr.until(t, "cannot connect yet")
	c.finish()
	if strings.Contains(c.stderr.String(), "c4nary") {
		t.Errorf("the password: %s", &c.stderr)
	}
}

// A worker finds a store that appears later.
func TestWorkerWaitsForStore(t *testing.T) {
	s := newScene(t)
	r := testenv.Redis(t)
	r.Kill()
	c := start(t, s.job(r.URL()))
	c.stderr.until(t, "cannot connect yet")
	r.Start()
	c.ready()
	c.until("there are grants", func(p Progress) bool { return p.Grants > 0 })
	c.finish()
	if r := history.Check(s.events(t), history.Options{MinGrants: 1, Slack: busySlack}); r.Outcome != history.Clean {
		t.Errorf("%s", r)
	}
}

// A worker ends in order, and soon, even if the store no longer answers.
func TestWorkerFinishesInAnOutage(t *testing.T) {
	s := newScene(t)
	r := testenv.Redis(t)
	for i, outage := range []func(*testenv.TCPProxy){(*testenv.TCPProxy).Hole, (*testenv.TCPProxy).Refuse} {
		way := testenv.Proxy(t, r.Addr)
		j := s.job(strings.Replace(r.URL(), r.Addr, way.Addr, 1))
		j.Process = fmt.Sprintf("p%d.1", i)
		c := start(t, j)
		c.ready()
		c.until("locks are held", func(p Progress) bool { return p.Grants > 0 && p.Holding > 0 })
		rec, err := history.Create(filepath.Join(s.dir, j.Process+".faults.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		rec.Record(history.Event{Kind: history.Fault, ID: j.Process, Target: j.Process, Text: "outage"})
		outage(way)
		c.finish()
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
	}
	events := s.events(t)
	// The effect of each outage depends on chance: this run is short, and the worker must finish at
	// once.
	if r := history.Check(events, history.Options{MinGrants: 1, Slack: busySlack}); r.Outcome == history.Violated {
		t.Errorf("%s", r)
	}
	closed := 0
	for _, e := range events {
		if e.Kind == history.Closed {
			closed++
		}
	}
	if closed != 4 {
		t.Errorf("%d clients were closed", closed)
	}
}

func TestWorkerRefusesNonsense(t *testing.T) {
	good := Job{URL: "memory:", Resource: "127.0.0.1:1", Process: "p0.1", Dir: t.TempDir(), Names: 1, Clients: 1, Loops: 1,
		TTL: time.Second, Mix: MixAll}
	line := func(change func(*Job)) string {
		j := good
		change(&j)
		text, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for text, word := range map[string]string{
		"":                 "JSON",
		"garbage c4nary":   "JSON",
		`{"URL":7}`:        "JSON",
		`{"Unknown":true}`: "JSON",
		line(func(j *Job) { j.URL = "x" }) + "{}":                           "more than one value",
		line(func(j *Job) { j.URL = "" }):                                   "no URL",
		line(func(j *Job) { j.Resource = "" }):                              "no Resource",
		line(func(j *Job) { j.Relay = "h:1\nx" }):                           "not one word",
		line(func(j *Job) { j.Process = "../p" }):                           "one word",
		line(func(j *Job) { j.Process = ".." }):                             "one word",
		line(func(j *Job) { j.Dir = "" }):                                   "no Dir",
		line(func(j *Job) { j.Prefix = "a\nb" }):                            "line break",
		line(func(j *Job) { j.Prefix = strings.Repeat("x", 500) }):          "bytes",
		line(func(j *Job) { j.Names = 0 }):                                  "Names 0: allowed are 1 to",
		line(func(j *Job) { j.Clients = -1 }):                               "Clients -1",
		line(func(j *Job) { j.Loops = maxLoops + 1 }):                       "Loops",
		line(func(j *Job) { j.TTL = time.Millisecond }):                     "TTL 1ms",
		line(func(j *Job) { j.Pause = -1 }):                                 "Pause",
		line(func(j *Job) { j.Mix = "everything" }):                         "allowed are all and mutex",
		`{"URL":"` + strings.Repeat("x", maxJob) + `"}`:                     "longer than",
		line(func(j *Job) { j.URL, j.Dir = "memory:", j.Dir+"/not/there" }): "history",
		line(func(j *Job) { j.URL, j.Resource = "memory:", "127.0.0.1:1" }): "fenced resource",
	} {
		c := startWith(t, text+"\n")
		if output := c.ended(); !strings.Contains(output, word) || strings.Contains(output, "c4nary") {
			t.Errorf("%.80q: %q; want it to contain %q", text, output, word)
		}
	}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	if _, err := parseJob([]byte("x")); !errors.Is(err, ErrJob) {
		t.Error(err)
	}
}

// An invalid URL is not tried again.
func TestWorkerRefusesURL(t *testing.T) {
	s := newScene(t)
	c := start(t, s.job("redis://u:c4nary@h?x=1"))
	if output := c.ended(); !strings.Contains(output, "allowed are") || strings.Contains(output, "c4nary") {
		t.Errorf("%q", output)
	}
}

// BenchmarkWorkers measures the grants a second of eight processes on one Redis server.
func BenchmarkWorkers(b *testing.B) {
	url := testenv.Redis(b).URL()
	for range b.N {
		s := newScene(b)
		var children []*child
		for i := range 8 {
			j := s.job(url)
			j.Process, j.Names, j.Loops, j.TTL, j.Mix = fmt.Sprintf("p%d.1", i), 16, 8, 2*time.Second, MixMutex
			children = append(children, start(b, j))
		}
		for _, c := range children {
			c.ready()
		}
		time.Sleep(5 * time.Second)
		for _, c := range children {
			c.finish()
		}
		r := history.Check(s.events(b), history.Options{})
		if r.Outcome == history.Violated {
			b.Fatalf("%s", r)
		}
		b.Logf("%s", r)
		b.ReportMetric(0, "ns/op")
	}
}
