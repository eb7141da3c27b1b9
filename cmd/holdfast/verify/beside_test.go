package verify

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// besideOptions are those of a run with two processes of each kind.
func besideOptions(t testing.TB, url, which string) Options {
	t.Helper()
	o := externalOptions(t, url, which)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Worker = func() *exec.Cmd {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), workerEnv+"=1")
		return cmd
	}
	o.Processes, o.Beside, o.Clients, o.Loops = 4, 2, 1, 4
	return o
}

// Another lock's workers and holdfast's take the same locks. A lock that keeps to the format of
// Redisson is clean, and one that does not is caught.
func TestBeside(t *testing.T) {
	t.Parallel()
	url := testenv.Redis(t).URL() + "?dialect=redisson"
	t.Run("sound", func(t *testing.T) {
		t.Parallel()
		o := besideOptions(t, url, "rlock")
		o.Kinds = []string{KindStop, KindKill, KindCut}
		r, err := Run(t.Context(), o)
		for err == nil && r.Outcome == history.Inconclusive && o.Duration < time.Minute {
			o.Duration, o.Dir = 3*o.Duration, t.TempDir() // on a busy machine too little happened
			r, err = Run(t.Context(), o)
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Outcome != history.Clean {
			t.Fatal(r.Text())
		}
		s := r.Sides
		if s.Grants.Own+s.Grants.Worker != r.Figures.Grants || min(s.Grants.Own, s.Grants.Worker) < MinGrants ||
			min(s.Changes.Own, s.Changes.Worker) < MinChanges || min(s.Faults.Own, s.Faults.Worker) < MinFaults {
			t.Errorf("%+v", s)
		}
		for _, class := range history.Classes {
			// No call is a reader, and a kill may come when no lock is held.
			if v := r.Report.Verdict(class); v.NotChecked != "" && class != history.S5 && class != history.L1 {
				t.Errorf("%s is not checked: %s", class, v.NotChecked)
			}
		}
		if text := r.Text(); !strings.Contains(text, "worker      rlock, which has no fencing tokens, no queue\n") ||
			!strings.Contains(text, "beside it   holdfast: ") {
			t.Error(text)
		}
		t.Log(r.Text())
	})
	for name, c := range map[string]struct{ which, url string }{
		"another key":       {"rlock elsewhere", url},
		"no look at others": {"rlock barges", url},
		"another format":    {"rlock", strings.TrimSuffix(url, "?dialect=redisson")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := besideOptions(t, c.url, c.which)
			o.Kinds = []string{KindStop}
			r, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if r.Outcome != history.Violated || r.Report.Verdict(history.S1).Count == 0 {
				t.Fatal(r.Text())
			}
			events, err := Read(r.Dir)
			if err != nil {
				t.Fatal(err)
			}
			again := Judge(events, history.Options{Slack: o.Slack, MinGrants: MinGrants, MinFaults: MinFaults})
			for _, class := range history.Classes {
				if got, want := again.Report.Verdict(class).Count, r.Report.Verdict(class).Count; got != want {
					t.Errorf("%s: judged again %d, at first %d", class, got, want)
				}
			}
		})
	}
}

// A run in which the two kinds never met proves nothing.
func TestBesideFew(t *testing.T) {
	enough := Sides{Sided{50, 50}, Sided{10, 10}, Sided{1, 1}}
	for _, c := range []struct {
		change func(*Sides)
		says   string
	}{
		{func(*Sides) {}, ""},
		{func(s *Sides) { s.Grants.Own = 49 }, "49 grants of holdfast; at least 50 are needed"},
		{func(s *Sides) { s.Grants.Worker = 0 }, "0 grants of the worker; at least 50 are needed"},
		{func(s *Sides) { s.Changes.Worker = 9 }, "9 times a lock went to the worker from the other kind; at least 10 are needed"},
		{func(s *Sides) { s.Faults.Own = 0 }, "0 faults of processes of holdfast; at least 1 are needed"},
	} {
		s := enough
		c.change(&s)
		if got := strings.Join(s.few(true), "\n"); got != c.says {
			t.Errorf("%q, want %q", got, c.says)
		}
	}
	if notes := (&Sides{Sided{50, 50}, Sided{10, 10}, Sided{}}).few(false); len(notes) > 0 {
		t.Errorf("a run without faults of processes: %q", notes)
	}
}

// Both kinds are hit by turns.
func TestBesideSchedule(t *testing.T) {
	s := newSchedule(1, Kinds(), nil, 5)
	s.beside = 2
	for i := range 20 {
		if p := s.next().faults[0].process; (p >= 3) != (i%2 == 1) {
			t.Errorf("round %d begins with process %d", i+1, p+1)
		}
	}
}

func TestBesideOptions(t *testing.T) {
	for _, c := range []struct {
		external string
		beside   int
	}{{"", 1}, {"true", -1}, {"true", 3}} {
		_, err := Run(t.Context(), Options{URL: "redis://127.0.0.1:1", External: c.external, Beside: c.beside, Processes: 3,
			Duration: time.Second})
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "number of holdfast's processes") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for url, want := range map[string]string{
		"redis://u:p@h/3?dialect=redisson": "redis://u:p@h:6379/3",
		"redis+quorum://a,b?x=y":           "redis+quorum://a:6379,b:6379",
		"postgres://h/d?sslmode=disable":   "postgres://h:5432/d?sslmode=disable",
	} {
		r := &run{Options: Options{URL: url, Beside: 1}}
		if a, err := r.externalAddress(); err != nil || a.at(a.servers) != want {
			t.Errorf("%s: %s, %v; want %s", url, a.at(a.servers), err, want)
		}
	}
}
