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
			if stepForm().MatchString(s.line) && s.text != "" && !steps[s.text] {
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
	const lost = "error: the connection is lost"
	notFollowed(t, Row{Store: SQLite, Acquire: "SELECT 1", Release: "SELECT 1",
		Setup: []string{"CREATE TABLE t (id INTEGER PRIMARY KEY)"}}, map[string]string{
		"A blocks> SELECT 1":                                                       "no command of SQLite keeps a client",
		"A is cut off: by a storm\nA> SELECT 1":                                    "can only crash",
		"A> SELECT 1\nA crashes: here\nA> SELECT 1 → 1":                            `the answer is "` + lost,
		"A> SELECT id FROM t → 1":                                                  `the answer is "no row"`,
		"lab> INSERT INTO t VALUES (1)\nA> INSERT INTO t VALUES (1), (2) → 2 rows": `the answer is "error: duplicate key"`,
		"A> INSERT INTO t VALUES (1), (2) → 2 rows\nA> SELECT id, NULL FROM t → x": `"[1, NULL] [2, NULL]"`,
	})
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
	notFollowed(t, Row{Store: Redis, Acquire: "SET R {me} NX PX 10000 → OK", Release: "DEL R"}, map[string]string{
		"A> SET R 1 → nil":      `A> SET R 1 → nil: the answer is "OK"`,
		"A locks\nB locks":      "B did not get the lock",
		"A is refused":          "A was not refused",
		"A locks up to nowhere": `A is at the end of its program, not at "nowhere"`,
		"A goes on":             "A is in no program",
		"A gets → 1":            "A waits for no answer",
		"A blocks> GET R":       "keeps a client waiting",
		"A> script: none R":     `there is no "script: none R"`,
		"A still waits":         "A waits for no answer",
	})
}

// A program that runs again remembers the new answer.
func TestRemembersAgain(t *testing.T) {
	notFollowed(t, Row{Store: Redis, Acquire: "INCR R → as {n}\nGET R → {n}", Release: "GET R"}, map[string]string{
		"A locks\nA unlocks\nA locks\nA> GET R → 3": `the answer is "2"`, // so A has got as far as that
	})
}

// On ZooKeeper also: an event that has come, an answer to nobody, a session that lives.
func TestZooKeeperPlayNotFollowed(t *testing.T) {
	const (
		back    = "A locks\nA is cut off: x\n9s later: x\nA is back: x\n"
		watched = "A> create /R → OK\nA> watch /R → exists\n"
	)
	notFollowed(t, Row{Store: ZooKeeper, Acquire: "create -e /R {me} → OK", Release: "delete /R"}, map[string]string{
		"A> create /R → no":    `the answer is "OK"`,
		"A> get /R → x":        `the answer is "error: no node"`,
		"A> create /R/n/n → x": `the answer is "error: no node"`,
		"A locks\nB locks":     "B did not get the lock",
		"A> fly /R":            `no command "fly"`,
		"A> ls":                "ls has no path",
		"A blocks> await /R":   "no watch was set",
		"A locks\nA is cut off: x\nA> get /R → A":                             `the answer is "no answer"`,
		"A locks\nA loses an answer: x\nA> get /R → A":                        `the answer is "no answer"`,
		"A locks\nA is cut off: x\n9s later: x\nB locks":                      "B did not get the lock",
		"A locks\n9m later: x\nB locks":                                       "B did not get the lock",
		"A locks\nA is cut off: x\n10s later: x\nA is back: x\nA> get /R → A": `the answer is "error: session expired"`,
		back + "A is cut off: x\n9s later: x\nA is back: x\nA> get /R → B":    `the answer is "A"`,
		watched + "B> delete /R\nA blocks> await /R":                          "deleted",
		watched + "A blocks> await /R\nB> set /R x\nA still waits":            "changed",
		watched + "A blocks> await /R":                                        "still waits for an answer at the end",
	})
}

// notFollowed runs a row with each of the plays, which must end with the error.
func notFollowed(t *testing.T, r Row, plays map[string]string) {
	t.Helper()
	l, err := New(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var rows []Row
	for play := range plays {
		one := r
		one.ID, one.job, one.Class, one.Lease = fmt.Sprint("test", len(rows)), stock, "S1", lease
		one.Play, one.sound = play, func(*scenario) {}
		one.prepare()
		rows = append(rows, one)
	}
	err = l.Run(t.Context(), rows, func(o *Outcome) error {
		want := plays[o.Row.Play]
		if o.Unsound.Err == nil || !strings.Contains(o.Unsound.Err.Error(), want) {
			t.Errorf("%q: %v; want %q", o.Row.Play, o.Unsound.Err, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
