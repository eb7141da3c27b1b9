package verify

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func externalOptions(t testing.TB, url, which string) Options {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The shell remains its parent: faults must reach its whole group.
	return Options{URL: url, External: externalEnv + "='" + which + "' '" + exe + "'; exit $?", Processes: 3, Loops: 5,
		TTL: 500 * time.Millisecond, Duration: 4 * time.Second, Slack: 8 * time.Second, Pause: 30 * time.Millisecond, Seed: 5,
		Dir: t.TempDir()}
}

// A worker of another lock is clean if the lock is sound, and a broken lock is caught.
func TestExternal(t *testing.T) {
	t.Parallel()
	url := testenv.Redis(t).URL()
	t.Run("sound", func(t *testing.T) {
		t.Parallel()
		o := externalOptions(t, url, "sound")
		o.Kinds = []string{KindStop, KindKill, KindReset}
		r, err := Run(t.Context(), o)
		if err != nil || r.Outcome != history.Clean || r.Figures.Grants < MinGrants || r.Counted() < MinFaults {
			t.Fatalf("%v\n%s", err, r.Text())
		}
		if text := r.Text(); !strings.Contains(text, "worker      sound, which has no fencing tokens, no queue\n") ||
			!strings.Contains(text, "S4  tokens are unique and grow: not checked: no grant has a token\n") {
			t.Error(text)
		}
	})
	t.Run("broken", func(t *testing.T) {
		t.Parallel()
		o := externalOptions(t, url, "broken")
		o.Kinds = []string{KindStop}
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		exclusion := r.Report.Verdict(history.S1).Count + r.Report.Verdict(history.S2).Count
		if r.Outcome != history.Violated || exclusion == 0 {
			t.Fatal(r.Text())
		}
		events, err := Read(r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		// The history is a file of the format: it has the same verdict again.
		again := Judge(events, history.Options{Slack: o.Slack, MinGrants: MinGrants, MinFaults: MinFaults})
		for _, class := range history.Classes {
			if got, want := again.Report.Verdict(class).Count, r.Report.Verdict(class).Count; got != want {
				t.Errorf("%s: judged again %d, at first %d", class, got, want)
			}
		}
	})
}

// A worker that ends by itself may have released its locks before. The next grants then violate nothing.
func TestExternalUnwinds(t *testing.T) {
	t.Parallel()
	o := externalOptions(t, testenv.Redis(t).URL(), "unwinds")
	first := filepath.Join(t.TempDir(), "first") // of the processes; the others are sound
	o.External = "mkdir '" + first + "' 2>/dev/null || export " + externalEnv + "=sound; " +
		strings.Replace(o.External, externalEnv+"='unwinds' ", externalEnv+"=${"+externalEnv+":-unwinds} ", 1)
	o.Processes, o.Names, o.Kinds = 2, 1, []string{KindNone}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome != history.Inconclusive || !strings.Contains(strings.Join(r.Notes, "\n"), "ended by itself") {
		t.Error(r.Text())
	}
}

// A worker that does not keep to the protocol ends the run with an error, or makes it inconclusive.
func TestExternalMalformed(t *testing.T) {
	t.Parallel()
	url := testenv.Redis(t).URL()
	for which, says := range map[string]string{
		"misspelt": `unknown field "token"`,
		"nameless": "needs the field worker",
		"ends":     "ended by itself",
	} {
		_, err := Run(t.Context(), externalOptions(t, url, which))
		if w := (*WorkerError)(nil); !errors.As(err, &w) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", which, err)
		}
	}
	for which, says := range map[string]string{
		"words":                           "not a line of the protocol",
		`{"id":1,"ok":true,"token":3}`:    "tokens was false",
		`{"id":900,"ok":true}`:            "an id without an order",
		`{"id":1}`:                        "one of ok, error, lost and queued",
		`{"ok":true}`:                     "it has no id",
		strings.Repeat("x", maxWords+1):   "longer than",
		`{"id":1,"ok":true,"held":true}`:  `belongs to "ok":false`,
		`{"id":1,"ok":true,"okay":false}`: `unknown field "okay"`,
	} {
		o := externalOptions(t, url, which)
		o.Processes, o.Loops, o.Kinds = 2, 2, []string{KindNone}
		o.TTL, o.Duration = 100*time.Millisecond, time.Second
		r, err := Run(t.Context(), o)
		text := ""
		if err != nil { // the first line was hardly read
			text = err.Error()
		} else if text = strings.Join(r.Notes, "\n"); r.Outcome != history.Inconclusive {
			text = r.Text()
		}
		if !strings.Contains(text, says) {
			t.Errorf("%.40s: %s", which, text)
		}
	}
}

// A worker that does not end at the end of its input is killed.
func TestExternalStays(t *testing.T) {
	t.Parallel()
	o := externalOptions(t, testenv.Redis(t).URL(), "stays")
	o.Kinds, o.TTL, o.Duration = []string{KindNone}, 100*time.Millisecond, time.Second
	r, err := Run(t.Context(), o)
	if err != nil || r.Outcome != history.Inconclusive || r.Took < endExternal || len(r.Notes) > 0 {
		t.Errorf("%v %+v", err, r)
	}
}

// A worker that is silent is replaced, and the run ends.
func TestExternalSilent(t *testing.T) {
	t.Parallel()
	o := externalOptions(t, testenv.Redis(t).URL(), "silent")
	o.Kinds, o.TTL, o.Duration, o.silence = []string{KindNone}, 100*time.Millisecond, time.Second, 100*time.Millisecond
	r, err := Run(t.Context(), o)
	if err != nil || r.Outcome != history.Inconclusive || r.Figures.Grants != 0 || r.Report.Fact("deaths") < o.Processes ||
		!strings.Contains(strings.Join(r.Notes, "\n"), "has not answered the order") {
		t.Fatalf("%v %+v", err, r)
	}
	// verify has killed them.
	if text := strings.Join(r.Notes, "\n"); strings.Contains(text, "by itself") ||
		!strings.Contains(text, "worker process p1.1 failed: ") {
		t.Errorf("%s", text)
	}
}

// A worker that is never ready is to blame if it is of another lock, otherwise the store is.
func TestNotReady(t *testing.T) {
	for external, want := range map[string]string{
		"": "context deadline exceeded: ", "x": "",
	} {
		for says, after := range map[string]string{"": "", "no route\n": ": no route"} {
			r, p := &run{}, &process{name: "p1.1"}
			if external != "" {
				p.external = &externalWorker{}
			}
			_, _ = p.stderr.Write([]byte(says))
			err := r.notReady(p)
			if text := want + "worker process p1.1 is not ready within 1m0s" + after; err.Error() != text ||
				errors.As(err, new(*WorkerError)) != (external != "") {
				t.Errorf("%q: %v", external, err)
			}
		}
	}
}

func TestExternalAddress(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://u:p@h/3?x=1":           "redis://u:p@R1/3?x=1 redis://h:6379/3",
		"redis+quorum://a:1,b,[::1]:2":  "redis+quorum://R1,R2,R3 redis+quorum://a:1,b:6379,[::1]:2",
		"x://h:5/p":                     "x://R1/p x://h:5/p",
		"sqlite:///tmp/a":               "sqlite:///tmp/a sqlite:///tmp/a",
		"redis+cluster://a":             "ask it for addresses",
		"x://h":                         "name the port",
		"h:1":                           "SCHEME://",
		"x://h:p":                       "cannot be parsed",
		"postgres://u:a%40b@h:1/d?s=/@": "postgres://u:a%40b@R1/d?s=/@ postgres://h:1/d",
	} {
		a, err := parseAddress(raw)
		if err != nil {
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", raw, err)
			}
			continue
		}
		if got := a.at([]string{"R1", "R2", "R3"}[:len(a.servers)]) + " " + a.place(); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}
