package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
)

// actor is a client in a play. It runs the programs of the row.
type actor struct {
	*client
	row      *Row
	sessions map[string]session
	known    map[string]string // what it has remembered, by name

	program program // what is left of the program that it runs
	end     func(ok bool)
	used    int   // what it has read at the resource
	sent    int64 // when it sent its last command
	blocked *blocked
}

// blocked is a command whose answer the server withholds.
type blocked struct {
	session session
	answer  chan reply
	end     context.CancelFunc // ends the wait
	waits   context.Context    // ends with the answer, as its cause
}

// reply is the answer to a command.
type reply struct {
	text string
	err  error
}

// line performs a line of the play that names the actor.
func (a *actor) line(s statement) {
	switch s.verb {
	case "locks":
		a.asks(a.mode(), false)
		a.start(a.row.acquire, s.text, a.locked)
	case "goes on":
		a.advance(s.text)
	case "locks shared":
		a.asks(driver.Shared, true)
		a.start(a.row.share, "", a.locked)
	case "unshares":
		a.release()
		a.start(a.row.unshare, "", func(bool) {})
	case "is refused":
		a.asks(a.mode(), false)
		a.start(a.row.acquire, "", func(ok bool) {
			a.mustBe(!ok, "was not refused")
			a.fails("it is taken")
		})
	case "waits":
		a.asks(a.mode(), true)
		a.start(a.row.acquire, "", func(ok bool) { a.mustBe(!ok, "did not have to wait") })
	case "queues":
		a.rec.addFormal(history.Event{Kind: history.Queued, Client: a.name, ID: a.id, Name: a.job.lock})
	case "tries again":
		a.start(a.row.acquire, "", a.locked)
	case "tries again in vain":
		a.start(a.row.acquire, "", func(ok bool) { a.mustBe(!ok, "was not refused") })
	case "renews":
		a.start(a.row.renew, s.text, func(ok bool) {
			a.mustBe(ok, "did not renew")
			a.renews(a.sent, "believes that it has renewed its lock")
		})
	case "renews in vain":
		a.start(a.row.renew, "", func(ok bool) { a.mustBe(!ok, "has renewed") })
	case "reads":
		a.used, _ = a.reads(a.name, a.token())
	case "writes":
		a.writes(a.name, a.used, a.token())
	case "works":
		a.used, _ = a.reads(a.name, a.token())
		a.works()
	case "unlocks":
		if a.job.has[0] != "" {
			a.works()
		}
		a.ends(s.text)
	case "releases":
		a.ends(s.text)
	case "asks":
		a.asks(a.mode(), false)
	case "holds":
		a.locked(true)
	default:
		a.fault(s)
	}
}

// fault performs a line about a failure, or about a single command.
func (a *actor) fault(s statement) {
	if name, ok := strings.CutPrefix(s.verb, "remembers "); ok {
		a.known[name] = s.text
		return
	}
	switch s.verb {
	case "crashes":
		for _, name := range []string{"", "2"} {
			if x := a.sessions[name]; x != nil {
				x.set(dead)
			}
		}
		a.rec.add(Event{Lane: a.name, Kind: Fault, Text: "crashes here: " + s.text},
			history.Event{Kind: history.Died, Client: a.name})
	case "thinks":
		a.concludes("%s", s.text)
	case "gives up":
		a.fails("%s", s.text)
	case "learns of the loss":
		a.rec.add(Event{Lane: a.name, Kind: Thinks, Text: s.text},
			history.Event{Kind: history.Lost, Client: a.name, ID: a.id, Name: a.job.lock})
	case "is cut off":
		a.session("").set(cut)
		a.known["fault"] = a.scenario.fault(a.name, a.name, "cut", "%s", s.text)
	case "is back":
		a.session("").set(passing)
		a.rec.add(Event{Lane: a.name, Kind: Fault, Text: s.text},
			history.Event{Kind: history.Healed, ID: a.known["fault"]})
	case "loses an answer":
		a.session("").set(losing)
		a.rec.add(Event{Lane: a.name, Kind: Fault, Text: s.text})
	case "fails once":
		a.session("").set(failing)
		a.rec.add(Event{Lane: a.name, Kind: Fault, Text: s.text})
	case "still waits":
		a.stillWaits()
	case "sends":
		if got := a.sends(s.session, s.text, s.want); !matches(a.fill(s.want), got) {
			a.failf("%s: the answer is %q", s.line, got)
		}
	case "blocks":
		x, command := a.session(s.session), a.fill(s.text)
		a.rec.add(Event{Lane: a.name, Kind: Does, Text: a.plain(command), Answer: "waits"})
		ctx, cancel := context.WithCancel(a.ctx)
		waits, answered := context.WithCancelCause(a.ctx)
		a.blocked = &blocked{x, make(chan reply, 1), cancel, waits}
		answer := a.blocked.answer
		go func() {
			text, err := x.send(ctx, command)
			answer <- reply{text, err}
			answered(errors.Join(fmt.Errorf("the server has answered: %s", text), err))
		}()
		a.must(x.blocked(waits))
	case "gets":
		if a.blocked == nil {
			a.failf("%s: %s waits for no answer", s.line, a.name)
		}
		r := <-a.blocked.answer // it ends with the context of the scenario
		a.blocked.end()
		a.blocked = nil
		a.must(r.err)
		got := a.plain(r.text)
		a.rec.add(Event{Lane: a.name, Kind: Does, Text: "has its answer", Answer: got})
		if !a.remembers(s.want, got) {
			a.failf("%s: the answer is %q", s.line, got)
		}
	}
}

// stillWaits makes sure that the server has not answered, and ends the wait.
func (a *actor) stillWaits() {
	a.mustBe(a.blocked != nil, "waits for no answer")
	a.must(a.blocked.session.blocked(a.blocked.waits))
	a.rec.add(Event{Lane: a.name, Kind: Thinks, Text: "still waits"})
	a.blocked.end()
	<-a.blocked.answer
	a.blocked = nil
}

// mode is that of Acquire.
func (a *actor) mode() driver.Mode {
	if a.row.permits() > 1 {
		return driver.Permits
	}
	return driver.Exclusive
}

// asks begins an attempt.
func (a *actor) asks(m driver.Mode, wait bool) {
	e := history.Event{TTL: a.row.Lease, Wait: wait, Mode: m}
	if m == driver.Permits {
		e.N, e.Limit = 1, a.row.permits()
	}
	a.beginsAs(e)
}

// locked is the end of an acquire that must have succeeded.
func (a *actor) locked(ok bool) {
	a.mustBe(ok, "did not get the lock")
	text := "holds the lock"
	if a.row.permits() > 1 {
		text = "has a permit"
	}
	if a.token() > 0 {
		text += fmt.Sprintf(", with token %d", a.token())
	}
	a.rec.add(Event{Lane: a.name, Kind: Thinks, Text: text}, history.Event{Kind: history.Granted, Client: a.name, ID: a.id,
		Name: a.job.lock, From: a.asked, Token: a.token()})
	if a.job.has[0] != "" {
		a.used, _ = a.reads(a.name, a.token())
	}
}

// token is the fencing token of the actor's lock: the number at the end of {token}, which may be the
// name of a node. 0: the algorithm has none.
func (a *actor) token() uint64 {
	if !a.row.Token {
		return 0
	}
	text := a.known["token"]
	return uint64(number(text[strings.LastIndexByte(text, '-')+1:]))
}

// works writes if there is work left.
func (a *actor) works() {
	if a.used < a.job.limit {
		a.writes(a.name, a.used, a.token())
	} else {
		a.concludes("nothing is left to do")
	}
}

// ends runs the release.
func (a *actor) ends(step string) {
	a.release()
	judged := a.row.release.judged()
	a.start(a.row.release, step, func(ok bool) {
		if judged {
			a.released(ok)
		}
		if !ok {
			a.concludes("the lock was not its own any more. It learns this only after its work")
		}
	})
}

// mustBe ends the run if the actor is not where the play has it.
func (a *actor) mustBe(ok bool, what string) {
	if !ok {
		a.failf("%s %s", a.name, what)
	}
}

// start runs a program up to a step, or to its end, at which it calls end.
func (a *actor) start(g program, step string, end func(ok bool)) {
	a.program, a.end = g, end
	a.advance(step)
}

// advance continues the program up to a step; "" is the end.
func (a *actor) advance(step string) {
	if a.end == nil {
		a.failf("%s is in no program", a.name)
	}
	for len(a.program) > 0 {
		s := a.program[0]
		a.program = a.program[1:]
		switch {
		case s.verb == "at" && s.text == step:
			return
		case s.verb != "sends": // another step, or an else of a command that has succeeded
			continue
		}
		if !matches(a.fill(s.want), a.sends(s.session, s.text, s.want)) {
			for _, other := range a.program {
				if other.verb != "else" {
					break
				}
				a.sends("", other.text, other.want)
			}
			a.finish(false)
			break
		}
	}
	if step != "" {
		a.failf("%s is at the end of its program, not at %q", a.name, step)
	}
	if a.end != nil {
		a.finish(true)
	}
}

func (a *actor) finish(ok bool) {
	end := a.end
	a.program, a.end = nil, nil
	end(ok)
}

// sends sends one command and returns the answer, as the timeline shows it.
func (a *actor) sends(name, command, want string) string {
	command, a.sent = a.fill(command), a.rec.now()
	text, err := a.session(name).send(a.ctx, command)
	switch {
	case err == nil:
	case a.ctx.Err() != nil || driver.IsFinal(err):
		a.must(err)
	default:
		text = "no answer"
	}
	text = a.plain(text)
	a.rec.add(Event{Lane: a.name, Kind: Does, Text: a.plain(command), Answer: text})
	a.remembers(want, text)
	return text
}

// remembers keeps the answer if want is a name, and reports whether it is as wanted.
func (a *actor) remembers(want, answer string) bool {
	if name, ok := named(want); ok {
		a.known[name] = answer
	}
	return matches(a.fill(want), answer)
}

// fill replaces the names that the actor knows.
func (a *actor) fill(text string) string {
	if _, remembers := named(text); remembers {
		return text
	}
	for name, value := range a.known {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// session returns a connection of the actor.
func (a *actor) session(name string) session {
	if x := a.sessions[name]; x != nil {
		return x
	}
	x, err := a.engine.session(a.client)
	if err != nil {
		a.must(fmt.Errorf("%s connects: %w", a.name, err))
	}
	a.sessions[name] = x
	return x
}
