package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWaitText(t *testing.T) { synctest.Test(t, testWaitText) } // its clock stands still

func testWaitText(t *testing.T) {
	h := &holdfast.Holder{Host: "runner-7", PID: 4211, User: "ci", Program: "deploy.sh",
		Since: time.Now().Add(-12 * time.Second), Left: 9 * time.Second}
	w := &holdfast.Waiting{Name: "deploy/prod", Ahead: 3, Holder: h}
	if got, want := waitText(w,
		0), `waiting for deploy/prod: 3 ahead · held by ci@runner-7:4211 "deploy.sh" for 12s · lease 9s`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := waitText(w, 4*time.Second); !strings.HasSuffix(got, "lease 5s") {
		t.Error(got)
	}
	h.Note, h.Labels = "release 12", map[string]string{"ticket": "OPS-12", "b": "c"}
	if got := waitText(w, 0); !strings.HasSuffix(got, ` · "release 12" · b=c ticket=OPS-12`) {
		t.Error(got)
	}
	h.Kept = true
	if got := waitText(w, 0); !strings.Contains(got,
		`3 ahead · kept for another 9s (a minimum hold), and held by nobody: taken by ci@runner-7:4211 "deploy.sh" 12s ago · "rel`) {
		t.Error(got)
	}
	h.Partial = true
	if got := waitText(w, 0); !strings.Contains(got, `3 ahead · not free at enough servers of the quorum: `+
		`a grant of ci@runner-7:4211 "deploy.sh", kept for another 9s (a minimum hold) · "rel`) {
		t.Error(got)
	}
	h.Kept = false
	if got := waitText(w, 0); !strings.Contains(got, `a grant of ci@runner-7:4211 "deploy.sh", which ends in 9s · "rel`) {
		t.Error(got)
	}
	part := &holdfast.Record{Name: "x", Kind: "lock", Partial: []holdfast.Holder{*h}}
	if got := strings.Join(row(part, false), "|"); !strings.HasPrefix(got, "x|-|(in part) ci@runner-7:4211|deploy.sh|") {
		t.Error(got)
	}
	if got := eventText(&holdfast.Event{Record: *part}); !strings.HasPrefix(got, "at too few servers: ci@runner-7:4211") {
		t.Error(got)
	}
	if got := waitText(&holdfast.Waiting{Name: "x"}, 0); got != "waiting for x: 0 ahead" {
		t.Error(got)
	}
}

// Text that others wrote into the store cannot control the terminal.
func TestTextOfOthersIsHarmless(t *testing.T) {
	evil := "a\x1b]0;b\x07\r\n\u202e\u3164\u2800\u00a0\ufe0f\U000e0101\xff"
	h := holdfast.Holder{Host: evil, User: evil, Program: evil, Note: evil, ID: evil,
		Labels: map[string]string{evil: evil}}
	r := holdfast.Record{Name: evil, Kind: "lock", Holders: []holdfast.Holder{h}, Waiters: []holdfast.Holder{h}}
	var out bytes.Buffer
	a := &app{stdout: &out, stderr: &out}
	if err := a.describe(&r, nil, true, unusuallyLong); err != nil {
		t.Fatal(err)
	}
	text := out.String() + strings.Join(row(&r, true), " ") + waitText(&holdfast.Waiting{Name: evil, Holder: &h}, 0)
	if strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), hidden) {
		t.Errorf("%q", text)
	}
}

// Two texts never look the same, and none looks like several columns or words.
func TestTextOfOthersIsDistinct(t *testing.T) {
	for text, want := range map[string][2]string{ // as shown, and as a word
		"deploy/prod": {"deploy/prod", "deploy/prod"}, "été": {"été", "été"}, "a b": {"a b", `"a b"`}, "": {`""`, `""`},
		"a\u3164": {`"a\u3164"`, `"a\u3164"`}, "a\u00a0b": {`"a\u00a0b"`, `"a\u00a0b"`},
		"\u2764\ufe0f": {`"❤\ufe0f"`, `"❤\ufe0f"`}, "\U000e0101": {`"\U000e0101"`, `"\U000e0101"`},
		"a\nb": {`"a\nb"`, `"a\nb"`}, `"a\nb"`: {`"\"a\\nb\""`, `"\"a\\nb\""`},
		"x  exclusive  root@db:1": {`"x  exclusive  root@db:1"`, `"x  exclusive  root@db:1"`}, " a": {`" a"`, `" a"`},
		"a ":  {`"a "`, `"a "`},
		"k=v": {"k=v", `"k=v"`}, `a"b`: {`a"b`, `"a\"b"`},
	} {
		if got := [2]string{show(text), word(text)}; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// FuzzShow: any text is shown without hidden characters, and can be read back.
func FuzzShow(f *testing.F) {
	for _, text := range []string{"", "a", `"a"`, "a\nb", "\xff", "\u3164", "\U000e0101", "a  b", `\u3164`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, shown := range []string{show(text), word(text), quote(text)} {
			back := shown
			if strings.HasPrefix(shown, `"`) {
				var err error
				if back, err = strconv.Unquote(shown); err != nil {
					t.Fatalf("%q is shown as %s: %v", text, shown, err)
				}
			}
			if back != text || strings.ContainsFunc(shown, hidden) {
				t.Errorf("%q is shown as %q", text, shown)
			}
		}
		if c := cut(oneLine(text), 20); len([]rune(c)) > 20 || strings.ContainsFunc(printable(text)+oneLine(text), hidden) {
			t.Errorf("%q is shown as %q, %q", text, c, printable(text))
		}
		if j := escapeJSON(text); strings.ContainsFunc(strings.ReplaceAll(j, "\n", ""), hidden) {
			t.Errorf("%q is written as %q", text, j)
		}
	})
}

func TestRough(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 400 * time.Millisecond: "0s", 59*time.Second + 499*time.Millisecond: "59s",
		60 * time.Second:  "1m0s",
		192 * time.Second: "3m12s", 125 * time.Minute: "2h5m", 76 * time.Hour: "3d4h",
	} {
		if got := rough(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for columns, want := range map[int]string{8: "漢字漢字", 7: "漢字漢…", 6: "漢字…", 2: "…"} { // each is two columns wide
		if got := cut("漢字漢字", columns); got != want {
			t.Errorf("%d: %q, want %q", columns, got, want)
		}
	}
	for columns, want := range map[int]string{10: "äöü", 3: "äöü", 2: "ä…", 1: "…", 0: "…"} {
		if got := cut("äöü", columns); got != want {
			t.Errorf("%d: %q, want %q", columns, got, want)
		}
	}
}

// Every flag for a time reads the same forms.
func TestTimes(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{"0": 0, "10": 10 * time.Second, "0.5": 500 * time.Millisecond,
		"1m30s": 90 * time.Second, "50ms": 50 * time.Millisecond, "1d": day, "1.5d": 36 * time.Hour,
		"7d12h": 7*day + 12*time.Hour} {
		var s seconds
		if err := s.Set(text); err != nil || s.d != want || !s.set {
			t.Errorf("%s: %v, %v", text, s.d, err)
		}
		var d time.Duration
		if err := (duration{&d}).Set(text); err != nil || d != want {
			t.Errorf("%s: %v, %v", text, d, err)
		}
		if err := (duration{&d}).Set("-" + text); err != nil || d != -want {
			t.Errorf("-%s: %v, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "-1s", "-1d", "NaN", "Inf", "Infd", "1e30", "1e10", "d", "1d2", "1dd",
		"200000d", "9223372037", "0x10d"} {
		var s seconds
		if s.Set(text) == nil {
			t.Errorf("%s: %v", text, s.d)
		}
	}
}

// Every error of the library has its exit code.
func TestCodes(t *testing.T) {
	for err, want := range map[error]int{
		holdfast.ErrHeld: 75, holdfast.ErrLost: 76, holdfast.ErrDeadlock: 64, holdfast.ErrInvalid: 78, holdfast.ErrKind: 78,
		holdfast.ErrRefused: 77, holdfast.ErrDamaged: 77, holdfast.ErrGone: 77, driver.ErrUnavailable: 69,
		driver.ErrUncertain: 69, holdfast.ErrClosed: 70,
		fmt.Errorf("no idea"): 70,
	} {
		e := command{&holdfast.Error{Op: "lock", Name: "x", Err: fmt.Errorf("%w: why", err)}}
		if code, silent := codeOf(e); code != want || silent {
			t.Errorf("%v: %d, want %d", err, code, want)
		}
	}
}

// A holder that is another program has no host and no process to show.
func TestAnotherProgram(t *testing.T) { synctest.Test(t, testAnotherProgram) } // its clock stands still

func testAnotherProgram(t *testing.T) {
	h := &holdfast.Holder{Note: "10.0.0.7", Left: 40 * time.Second, Since: time.Now()}
	if got, want := describe(h), `held by another program for 0s · lease 40s · "10.0.0.7"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := h.String(), `another program "10.0.0.7" for 0s`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	h.Left = 0 // ZooKeeper does not report it
	if got, want := describe(h), `held by another program for 0s · lease unknown · "10.0.0.7"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	h.Undated = true // Redisson does not record it
	if got, want := describe(h), `held by another program · lease unknown · "10.0.0.7"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	r := &holdfast.Record{Name: "x", Kind: "lock", Holders: []holdfast.Holder{*h}}
	if got := row(r, false); got[4] != "unknown" {
		t.Errorf("ls shows that it is held for %s", got[4])
	}
	if got := detail("lock", h, false); got[3] != "unknown" {
		t.Errorf("info shows that it is held for %s", got[3])
	}
	if j := holdersJSON(r.Holders); !j[0].Since.IsZero() {
		t.Errorf("JSON says that it is held since %v", j[0].Since)
	}
	if got := aftermath(h); !strings.Contains(got, "holdfast cannot notify") {
		t.Errorf("after a break: %s", got)
	}
	h = &holdfast.Holder{Host: "web-1", PID: 7, Left: 9 * time.Second}
	if got := aftermath(h); !strings.Contains(got, "within a third of its TTL; if") ||
		!strings.Contains(got, "for up to 9s") {
		t.Errorf("after a break: %s", got)
	}
}

// JSON keeps the text, without raw control characters.
func TestJSONIsHarmless(t *testing.T) {
	for _, text := range []string{"plain é 日本 \"quoted\" <&>", "\x1b[31m\u009b31m", "\u202egnp.exe", "a\u200bb\ufeff",
		"\U000e0041", "line\nbreak\ttab"} {
		var b strings.Builder
		if err := writeJSON(&b, map[string]string{"note": text}, true); err != nil {
			t.Fatal(err)
		}
		for _, r := range b.String() {
			if r != '\n' && !unicode.IsGraphic(r) {
				t.Errorf("%q: %q has %U", text, b.String(), r)
			}
		}
		var back map[string]string
		if err := json.Unmarshal([]byte(b.String()), &back); err != nil || back["note"] != text {
			t.Errorf("%q: read back as %q, %v", text, back["note"], err)
		}
	}
}
