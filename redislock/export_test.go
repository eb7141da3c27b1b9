package redislock

import (
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// NewEdited is New with the text of every script changed by edit.
func NewEdited(conn Conn, cfg *Config, edit func(name, text string) string) *Backend {
	return newBackend(conn, cfg, nil, edit)
}

// SetClock replaces the clock of the process.
func (b *Backend) SetClock(now func() time.Duration) { b.now = now }

// ListenEarly makes each Acquire one script, also in a Cluster.
func (b *Backend) ListenEarly() { b.early = true }

// DecodeRecord and DecodeHolder parse answers of scripts.
var (
	DecodeRecord = decodeRecord
	DecodeHolder = decodeHolder
)

// Scripts returns the text of every script, by deployment and name.
func Scripts() map[string]map[string]string {
	all := map[string]map[string]string{"server": {}, "cluster": {}, "member": {}}
	m := &membership{prefix: "it's \"hf\"\\\n:", quarantine: time.Minute, servers: "0123abcd"}
	for kind, m := range map[string]*membership{"server": nil, "cluster": nil, "member": m} {
		load(kind == "cluster", m, func(name, text string) string {
			all[kind][name] = text
			return text
		})
	}
	return all
}

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

// Answered reports whether v ends the call that s was run for. A fast-path script may leave it to
// another.
func (b *Backend) Answered(s *Script, v Value) bool {
	switch s {
	case b.scripts.take:
		return v.Int > 0
	case b.scripts.drop:
		return v.Int == 0
	case b.scripts.renew:
		return len(v.List) == 0
	}
	return true
}

// ShardOf returns the shard of a name.
func ShardOf(name string) int { return shardOf(name) }

// Deliver passes messages to a session with one waiter, of request id, and returns what the waiter
// receives.
func Deliver(id string, last uint64, messages ...string) (pushed uint64, ok bool) {
	s := &session{b: &Backend{now: func() time.Duration { return 0 }}, requests: map[string]request{}}
	_, _ = s.register(id, request{name: "n"})
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

// CancelMany has a session remember as many cancelled requests as it can.
func CancelMany(s driver.Session) {
	for i := range 2 * mostCancelled {
		s.(*session).remembers(strconv.Itoa(i), "")
	}
}
