package lab

import (
	"fmt"
	"iter"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
)

// A row that is data: its commands, and a play, which is the order of events in lines of text.
//
// Acquire, Release and Renew are programs. Each line is a command of the store, and what must be
// its answer:
//
//	SET R {me} NX PX 10000 → OK    if the answer differs, the program fails
//	GET R → as {seen}              any answer, which the client remembers as {seen}
//	GET R → {me}                   the answer must be what the client knows as {me}
//	DEL R                          any answer
//	/2> DEL R                      on another connection of the client
//	at: between GET and DEL        a step at which the play may stop the client
//	else: INCR R                   only if the command before had a different answer
//
// An answer may be one of several (OK | 1), a comparison (>=0, <0), anything (*), or the beginning
// of an answer (error…). {me} is the client's name.
//
// The lines of a play, for a client A:
//
//	A locks                        runs Acquire, which must succeed; then A reads the resource
//	A locks up to STEP             the same, up to a step of the program
//	A goes on [up to STEP]         continues the program
//	A is refused                   runs Acquire, which must fail
//	A waits                        the same, and A stays a waiter
//	A queues                       A believes that it has a place in a queue
//	A gives up: WHY                a waiter leaves, or one that asks is refused
//	A tries again [in vain]        a waiter runs Acquire again
//	A renews [up to STEP]          runs Renew, which must succeed
//	A renews in vain               runs Renew, which must fail
//	A reads, A writes, A works     at the guarded resource; works is both
//	A locks shared                 runs Share, which must succeed
//	A unlocks [up to STEP]         writes if there is work left, and runs Release
//	A releases [up to STEP]        runs Release
//	A unshares                     runs Unshare
//	A crashes: WHY                 none of its commands arrives from here on
//	A thinks: TEXT
//	B uses A's connection: WHY     B's first connection is A's
//	A remembers NAME: VALUE        from here on {NAME} is VALUE in A's commands
//	A asks, A holds                the beginning and the success of an attempt without Acquire
//	A learns of the loss: HOW
//	A> COMMAND → ANSWER            one command
//	A/2> COMMAND → ANSWER          the same on another connection of A
//	A blocks> COMMAND              the server must keep A waiting for the answer
//	A gets → ANSWER                the answer to that command
//	A still waits                  the server has not answered it
//	A is cut off: WHY              no request arrives until "A is back: TEXT"
//	A loses an answer: WHY         the next command takes effect, and its answer is lost
//	A fails once: WHY              the next command does not arrive
//	12s later: WHY                 time passes, at the server and on all clocks
//	look                           shows the lock at the server
//	lab: TEXT                      an explanation
//	lab> COMMAND                   a command of the lab itself, to prepare something
//	left over: N                   what the store has taken when no client holds the lock
type play []statement

// statement is a line of a play or of a program.
type statement struct {
	line    string
	client  string
	verb    string
	session string // of the client; empty for the first
	text    string // the rest: a command, a reason, a step
	want    string // the answer that the line asks for
}

// form returns a function that returns the regular expression, compiled when it is first used: most runs of
// the program need none.
func form(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// The forms of lines. The first that matches applies.
var (
	laterForm   = form(`^(\S+) later: (.+)$`)
	labForm     = form(`^(lab|left over): (.+)$`)
	commandForm = form(`^([A-Z])(?:/(\d))?( blocks)?> (.+)$`)
	getsForm    = form(`^([A-Z]) gets → (.+)$`)
	reasonForm  = form(`^([A-Z]) (crashes|thinks|gives up|learns of the loss|is cut off|is back|` +
		`loses an answer|fails once|remembers \w+|uses [A-Z]'s connection): (.+)$`)
	stepForm  = form(`^([A-Z]) (locks|goes on|unlocks|releases|renews)(?: up to (.+))?$`)
	plainForm = form(`^([A-Z]) (locks shared|unshares|is refused|waits|queues|tries again|` +
		`tries again in vain|renews in vain|reads|writes|works|asks|holds|still waits)$`)
)

// parsePlay reads a play. The error names the line that has none of the forms.
func parsePlay(text string) (all play, err error) {
	for line := range lines(text) {
		s, ok := parseLine(line)
		if !ok {
			return nil, fmt.Errorf("%w line of a play: %q", driver.ErrInvalid, line)
		}
		all = append(all, s)
	}
	return all, nil
}

func parseLine(line string) (s statement, ok bool) {
	s.line = line
	switch {
	case line == "look":
		s.verb = "look"
	case laterForm().MatchString(line):
		m := laterForm().FindStringSubmatch(line)
		s.verb, s.want, s.text = "later", m[1], m[2]
		_, err := time.ParseDuration(m[1])
		return s, err == nil
	case strings.HasPrefix(line, "lab> "):
		s.verb, s.text = "lab>", line[len("lab> "):]
	case labForm().MatchString(line):
		m := labForm().FindStringSubmatch(line)
		s.verb, s.text = m[1], m[2]
	case commandForm().MatchString(line):
		m := commandForm().FindStringSubmatch(line)
		s.client, s.session, s.verb = m[1], m[2], "sends"
		s.text, s.want = cutAnswer(m[4])
		if m[3] != "" {
			s.verb = "blocks"
		}
	case getsForm().MatchString(line):
		m := getsForm().FindStringSubmatch(line)
		s.client, s.verb, s.want = m[1], "gets", m[2]
	default:
		for _, form := range []*regexp.Regexp{reasonForm(), stepForm(), plainForm()} {
			if m := form.FindStringSubmatch(line); m != nil {
				s.client, s.verb = m[1], m[2]
				if len(m) > 3 {
					s.text = m[3]
				}
				return s, true
			}
		}
		return s, false
	}
	return s, true
}

// program is Acquire, Release or Renew.
type program []statement

func parseProgram(text string) (all program) {
	for line := range lines(text) {
		s := statement{line: line, verb: "sends"}
		if step, ok := strings.CutPrefix(line, "at: "); ok {
			s.verb, s.text = "at", step
		} else if command, ok := strings.CutPrefix(line, "else: "); ok {
			s.verb = "else"
			s.text, s.want = cutAnswer(command)
		} else {
			if other, ok := strings.CutPrefix(line, "/2> "); ok {
				s.session, line = "2", other
			}
			s.text, s.want = cutAnswer(line)
		}
		all = append(all, s)
	}
	return all
}

// judged reports whether a program learns from an answer whether it has succeeded.
func (g program) judged() bool {
	for _, s := range g {
		if _, remembers := named(s.want); s.verb == "sends" && s.want != "" && s.want != "*" && !remembers {
			return true
		}
	}
	return false
}

// cutAnswer separates a command from its answer.
func cutAnswer(line string) (command, want string) {
	command, want, _ = strings.Cut(line, " → ")
	return strings.TrimSpace(command), strings.TrimSpace(want)
}

// lines returns the lines of text that are not empty, without the spaces around them.
func lines(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && !yield(line) {
				return
			}
		}
	}
}

// named returns NAME of "as {NAME}": the client remembers the answer.
func named(want string) (name string, ok bool) {
	name, ok = strings.CutPrefix(want, "as {")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(name, "}")
}

// matches reports whether an answer is as wanted.
func matches(want, answer string) bool {
	if _, remembers := named(want); want == "" || want == "*" || remembers {
		return true
	}
	for w := range strings.SplitSeq(want, " | ") {
		start, isStart := strings.CutSuffix(w, "…")
		var n, bound int
		_, numeric := fmt.Sscan(answer, &n)
		switch {
		case w == answer, isStart && strings.HasPrefix(answer, start):
			return true
		case strings.HasPrefix(w, ">=") && numeric == nil:
			if _, err := fmt.Sscan(w[2:], &bound); err == nil && n >= bound {
				return true
			}
		case strings.HasPrefix(w, "<") && numeric == nil:
			if _, err := fmt.Sscan(w[1:], &bound); err == nil && n < bound {
				return true
			}
		}
	}
	return false
}

// perform runs a row that is data.
func perform(r *Row) func(*scenario) {
	return func(p *scenario) {
		all, err := parsePlay(r.Play)
		p.must(err)
		y := &stage{scenario: p, row: r, actors: map[string]*actor{}}
		for _, s := range all {
			y.line(s)
		}
		for _, a := range y.actors {
			if a.blocked != nil {
				p.failf("%s still waits for an answer at the end of the play", a.name)
			}
		}
	}
}

// stage is the run of a play.
type stage struct {
	*scenario
	row    *Row
	actors map[string]*actor
	own    session // of the lab itself
}

// actor returns the actor of a client.
func (y *stage) actor(name string) *actor {
	a := y.actors[name]
	if a == nil {
		a = &actor{client: &client{scenario: y.scenario, name: name}, row: y.row,
			sessions: map[string]session{}, known: map[string]string{"me": name}}
		y.actors[name] = a
	}
	return a
}

// line performs a line of the play.
func (y *stage) line(s statement) {
	if other, ok := strings.CutPrefix(s.verb, "uses "); ok {
		y.actor(s.client).sessions[""] = y.actor(other[:1]).session("")
		y.show("%s uses the connection of %s: %s", s.client, other[:1], s.text)
		return
	}
	if s.client != "" {
		y.actor(s.client).line(s)
		return
	}
	switch s.verb {
	case "later":
		d, _ := time.ParseDuration(s.want) // the parser has checked it
		y.pass(d, s.text)
	case "look":
		y.show("%s", y.engine.look(y.scenario))
	case "lab":
		y.show("%s", s.text)
	case "lab>":
		if y.own == nil {
			var err error
			y.own, err = y.engine.session(&client{scenario: y.scenario, name: Stage})
			y.must(err)
		}
		answer, err := y.own.send(y.ctx, s.text)
		y.must(err)
		y.show("%s → %s", y.plain(s.text), y.plain(answer))
	case "left over":
		var n int32
		_, err := fmt.Sscan(s.text, &n)
		y.must(err)
		e := history.Event{Kind: history.State, Name: y.job.lock, N: n}
		if limit := y.row.permits(); limit > 1 {
			e.Limit = limit
		}
		y.rec.addFormal(e)
	}
}
