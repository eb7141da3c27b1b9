package lab

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

// The plays of all rows can be read, and every step that a play names is in a program.
func TestPlays(t *testing.T) {
	n := 0
	for _, r := range Rows() {
		if r.Play == "" {
			continue
		}
		n++
		all, err := parsePlay(r.Play)
		if err != nil {
			t.Errorf("%s: %v", r.ID, err)
		}
		steps := map[string]bool{}
		for _, g := range []program{r.acquire, r.release, r.renew, r.share, r.unshare} {
			for _, s := range g {
				if s.verb == "at" {
					steps[s.text] = true
				}
			}
		}
		for _, s := range all {
			if stepForm.MatchString(s.line) && s.text != "" && !steps[s.text] {
				t.Errorf("%s: no program has the step of %q", r.ID, s.line)
			}
		}
	}
	if n < 13 {
		t.Errorf("only %d rows are data", n)
	}
}

func TestPlayRefused(t *testing.T) {
	for _, line := range []string{
		"A", "a locks", "A lockes", "AB locks", "A locks up to", "later: x", "soon later: x", "A thinks:", "A gets 1", "A>",
		"A/x> GET R", "left over", "look here", "A remembers: x",
	} {
		if all, err := parsePlay("A locks\n" + line); !errors.Is(err, driver.ErrInvalid) ||
			!strings.Contains(err.Error(), line) {
			t.Errorf("%q: %+v, %v; want ErrInvalid with the line", line, all, err)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		want, answer string
		ok           bool
	}{
		{"", "x", true}, {"*", "", true}, {"as {name}", "x", true}, {"{name}", "x", false},
		{"OK", "OK", true}, {"OK", "nil", false},
		{"nil | 0", "0", true}, {"nil | 0", "1", false}, {">=0", "0", true}, {">=0", "-1", false}, {"<0", "-1", true},
		{"<0", "nil", false}, {"error…", "error: taken", true}, {"error…", "OK", false},
	} {
		if got := matches(c.want, c.answer); got != c.ok {
			t.Errorf("%q and %q: %v; want %v", c.want, c.answer, got, c.ok)
		}
	}
}

// A session of SQL says what it cannot do.
func TestSQLPlayNotFollowed(t *testing.T) {
	l, err := New(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const insert = "A> INSERT INTO t VALUES (1), (2) → 2 rows"
	for play, want := range map[string]string{
		"A blocks> SELECT 1":                            "no command of SQLite keeps a client",
		"A is cut off: by a storm\nA> SELECT 1":         "can only crash",
		"A> SELECT 1\nA crashes: here\nA> SELECT 1 → 1": "error: the connection is lost",
		"A> SELECT id FROM t → 1":                       "no row",
		"lab> INSERT INTO t VALUES (1)\n" + insert:      "error: duplicate key",
		insert + "\nA> SELECT id, NULL FROM t → x":      "[1, NULL] [2, NULL]",
	} {
		r := Row{ID: "test", Store: SQLite, job: stock, Class: "S1", Acquire: "SELECT 1", Release: "SELECT 1", Play: play,
			Setup: []string{"CREATE TABLE t (id INTEGER PRIMARY KEY)"}, sound: func(*scenario) {}}
		r.prepare()
		err := l.Run(t.Context(), []Row{r}, func(o *Outcome) error {
			if o.Unsound.Err == nil || !strings.Contains(o.Unsound.Err.Error(), want) {
				t.Errorf("%q: %v; want %q", play, o.Unsound.Err, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// No text breaks the parsers.
func FuzzPlay(f *testing.F) {
	f.Add("A locks up to x\nB> GET R → {x}\n12s later: y")
	f.Add("at: x\nelse: y → z")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range parseProgram(text) {
			matches(s.want, s.text)
		}
		all, err := parsePlay(text)
		if err == nil && len(all) == 0 && strings.TrimSpace(text) != "" {
			t.Errorf("%q is no play, and was not refused", text)
		}
	})
}

// A run that does not follow its play ends with an error that names the line.
func TestPlayNotFollowed(t *testing.T) {
	l, err := New(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := 0
	for play, want := range map[string]string{
		"A> SET R 1 → nil":      `A> SET R 1 → nil: the answer is "OK"`,
		"A locks\nB locks":      "B did not get the lock",
		"A is refused":          "A was not refused",
		"A locks up to nowhere": `A is at the end of its program, not at "nowhere"`,
		"A goes on":             "A is in no program",
		"A gets → 1":            "A waits for no answer",
		"A blocks> GET R":       "keeps a client waiting",
		"A> script: none R":     `there is no "script: none R"`,
	} {
		n++
		r := Row{ID: fmt.Sprint("test", n), Store: Redis, job: stock, Class: "S1", Acquire: "SET R {me} NX PX 10000 → OK",
			Release: "DEL R", Lease: lease, Play: play, sound: func(*scenario) {}}
		r.prepare()
		err := l.Run(t.Context(), []Row{r}, func(o *Outcome) error {
			if o.Unsound.Err == nil || !strings.Contains(o.Unsound.Err.Error(), want) {
				t.Errorf("%q: %v; want %q", play, o.Unsound.Err, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
