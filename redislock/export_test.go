package redislock

import (
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// These parse answers of scripts.
var (
	DecodeRecord  = decodeRecord
	DecodeHolder  = decodeHolder
	DecodeHistory = decodeHistory
)

// ScriptFiles returns the text of every script file, by its name.
func ScriptFiles() map[string]string {
	all := map[string]string{}
	files, err := lua.ReadDir("lua")
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".lua")
		all[name] = strings.TrimPrefix(join(name), "\n")
	}
	all["common"] = strings.Replace(all["common"], "--FORMAT\n", join("format"), 1) // as in body
	delete(all, "format")
	return all
}

// Deliver passes messages to a session with one waiter, of request id, and returns what the waiter
// receives.
func Deliver(id string, last uint64, messages ...string) (pushed uint64, ok bool) {
	s := &session{b: &Backend{now: func() time.Duration { return 0 }}, requests: map[string]request{}}
	_, _, _ = s.register(id, request{name: "n"}, 0)
	wake, _ := s.waits(id, last)
	for _, m := range messages {
		s.message(m)
	}
	select {
	case pushed = <-wake:
		return pushed, true
	default:
		return 0, false
	}
}

// LateRenewal reports whether a session knows a request that was handed back with the token newer,
// after the late answer that its grant with the token older is gone.
func LateRenewal(id string, older, newer uint64) bool {
	s := &session{b: &Backend{now: func() time.Duration { return 0 }}, requests: map[string]request{}}
	_, _, _ = s.register(id, request{name: "n"}, 0)
	s.holds(id, older, 0)
	s.offers(id, older) // after the renewal was sent
	_, _ = s.waits(id, older)
	s.message(id + " " + strconv.FormatUint(newer, 10))
	gone := []Value{{Kind: Int, Int: 1}, {Kind: Int, Int: int64(driver.Gone)}, {Kind: Int}, {Kind: Int}, {Kind: Int}}
	s.change([]driver.Hold{{Name: "n", ID: id, Token: older}}, 0, gone)
	a, ok := s.requests[id]
	if !ok || a.token != newer {
		return false
	}
	s.change([]driver.Hold{{Name: "n", ID: id, Token: newer}}, 0, gone) // that of the newer one counts
	_, ok = s.requests[id]
	return !ok
}

// CancelledUpTo returns the largest token that a member's session does not rely on, so long after it has
// sent a cancellation that ends tokens up to limit, without an answer. known is how many such it remembers.
func CancelledUpTo(d time.Duration, limit uint64) (token uint64, known int) {
	var now time.Duration
	s := &session{b: &Backend{now: func() time.Duration { return now }, member: &membership{}},
		undoing: map[string]*undoing{"a": {limit: limit, late: true}}}
	now = d
	s.prune()
	return s.cancelledUpTo("a"), len(s.undoing)
}

// Scripts returns the text of every script, by deployment and name.
var Scripts = everyScript

// ReadServerTexts parses an answer to INFO and one to CLUSTER NODES.
func ReadServerTexts(info, nodes string) { fields(info); movesOf(nodes) }

// WhyLost returns the cause that an answer of missing.lua shows.
func WhyLost(v Value, held time.Duration) (cause driver.Cause, ok bool) {
	l, ok := decodeLoss(v)
	if !ok {
		return driver.CauseUnknown, false
	}
	return l.cause(held), true
}
