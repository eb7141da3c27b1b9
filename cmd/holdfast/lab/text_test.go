package lab

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// handMade is an outcome with hostile texts.
func handMade() *Outcome {
	r := newRecord("")
	for _, who := range []string{"A", "B"} {
		r.addFormal(history.Event{Kind: history.Acquire, Client: who, ID: who + "1", Name: "x", TTL: time.Second})
		r.add(Event{Lane: who, Kind: Does, Text: `SET <script>alert(1)</script> "&'`, Answer: "</td><b>OK"},
			history.Event{Kind: history.Granted, Client: who, ID: who + "1", Name: "x"})
	}
	r.add(Event{Lane: Stage, Kind: Fault, Text: strings.Repeat("long", 100)})
	o := &Outcome{Row: Row{ID: "hand-made", Title: "<i>title</i>", Class: history.S1, Why: "<why>"},
		Unsound: Part{Record: r}, Sound: Part{Record: newRecord("")}}
	o.judge()
	return o
}

func TestVerdictFromRecord(t *testing.T) {
	o := handMade()
	if !o.Broke || !o.Survived || !o.OK() {
		t.Errorf("two grants inside a lease: broke %v, survived %v: %+v", o.Broke, o.Survived, o.Unsound.Found)
	}
	o.Row.Class = history.L4
	if o.judge(); o.Broke {
		t.Error("another class than the documented one counts")
	}
	o.Sound.Record = o.Unsound.Record
	if o.judge(); o.Survived {
		t.Error("holdfast survived although it has the same finding")
	}
	o.Row.except = []history.Class{history.S1}
	if o.judge(); !o.Survived || len(o.Sound.Found) == 0 {
		t.Errorf("an excepted class counts, or is not shown: %+v", o.Sound.Found)
	}
}

// A run that could not be completed says nothing about the lock. The line remains one line.
func TestLineOfARunThatFailed(t *testing.T) {
	o := handMade()
	o.Unsound.Err = errors.New("redis-server ended at once: no memory\nno memory")
	o.Sound.Err = o.Unsound.Err
	o.Broke, o.Survived = false, false
	const why = " (redis-server ended at once: no memory no memory)"
	if line := o.Line(); !strings.HasSuffix(line, "NOT COMPLETED"+why+"; holdfast's run NOT COMPLETED"+why) {
		t.Errorf("%q", line)
	}
}

func TestPageEscapes(t *testing.T) {
	var b bytes.Buffer
	if err := WriteHTML(&b, []*Outcome{handMade()}); err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{"<script", "</td><b>", "<i>title", "<why>"} {
		if strings.Contains(b.String(), raw) {
			t.Errorf("%s is not escaped", raw)
		}
	}
}

// No text of an outcome has the password of the server, whatever a server or a client says.
func TestOutcomeHasNoPassword(t *testing.T) {
	const canary = "c4nary-of-the-lab"
	h := &redisHost{url: "redis://locker:" + canary + "@127.0.0.1:1"}
	l := &Lab{}
	o := &Outcome{Row: Row{ID: "hand-made", Class: history.S1}}
	says := func(p *scenario) {
		p.rec.add(Event{Lane: "A", Kind: Does, Text: "HELLO 3 AUTH locker " + canary,
			Answer: "ERR unknown command 'AUTH', with args beginning with: '" + canary + "'"})
		p.failf("dial %s: no", h.url)
	}
	o.Unsound, o.Sound = l.part(t.Context(), h, o.Row, "u:", nil, says), l.part(t.Context(), h, o.Row, "h:", nil, says)
	o.judge()
	var b bytes.Buffer
	if err := WriteHTML(&b, []*Outcome{o}); err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprint(o.Line(), o.Text(0), b.String(), o.Unsound.Err, o.Unsound.Record.Events())
	if strings.Contains(all, canary) || !strings.Contains(all, "HELLO 3 AUTH locker ***") {
		t.Error(all)
	}
}

func TestTextFitsTheTerminal(t *testing.T) {
	o := handMade()
	for _, columns := range []int{80, 100, 160} {
		text := o.Text(columns)
		if !strings.Contains(text, "A and B both believe that they hold the lock") {
			t.Errorf("the text does not show the moment of the conflict:\n%s", text)
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > columns {
				t.Errorf("a line of %d characters on %d columns: %s", n, columns, line)
			}
		}
	}
}

func TestWrapped(t *testing.T) {
	for _, c := range []struct {
		text string
		want string
	}{
		{"", ""},
		{"a bc def", "a bc|def"},
		{"abcdefgh", "abcd|efgh"},
		{"a abcdefg b", "a|abcd|efg|b"},
		{"äöü äöü", "äöü|äöü"},
	} {
		if got := strings.Join(wrapped(c.text, 4), "|"); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestSpell(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Hour: "1 hour", 2 * time.Minute: "2 minutes", 90 * time.Second: "90 seconds", 3333333 * time.Microsecond: "3.3s",
	} {
		if got := spell(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
