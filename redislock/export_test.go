package redislock

import (
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
	return all
}

// Deliver passes messages to a session with one waiter, of request id, and returns what the waiter
// receives.
func Deliver(id string, last uint64, messages ...string) (pushed uint64, ok bool) {
	s := &session{b: &Backend{now: func() time.Duration { return 0 }}, requests: map[string]request{}}
	_, _, _ = s.register(id, request{name: "n"})
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
