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

// ListenEarly makes each Acquire one script in a Cluster, too.
func (b *Backend) ListenEarly() { b.early = true }

// DecodeRecord and DecodeHolder read answers of scripts.
var (
	DecodeRecord = decodeRecord
	DecodeHolder = decodeHolder
)

// Scripts is the text of every script, by what it is for and its name.
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

// ScriptFiles is the text of every file that scripts are made of, by its name.
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

// Answered reports whether v ends the call that s was run for. The lean scripts may leave it
// to another.
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

// ShardOf is the shard of a name.
func ShardOf(name string) int { return shardOf(name) }

// Hear lets a session with one waiter, of request id, hear messages, and returns what the waiter is told.
func Hear(id string, last uint64, messages ...string) (told uint64, heard bool) {
	s := &session{b: &Backend{now: func() time.Duration { return 0 }}, asks: map[string]ask{}}
	_, _ = s.enter(id, ask{name: "n"})
	wake, _ := s.waits(id, last)
	for _, m := range messages {
		s.message(m)
	}
	select {
	case told = <-wake:
		return told, true
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
