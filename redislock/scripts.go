package redislock

import (
	"cmp"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

//go:embed lua/*.lua
var lua embed.FS

const (
	// retention is how long a name's record stays after its last lease has expired. It is longer
	// than two granules: see mint in common.lua.
	retention = time.Minute

	latchLife = 24 * time.Hour        // since its last use
	interest  = time.Hour             // how long a latch remembers an Await, at least
	granule   = 10 * time.Second      // unit of the floor of tokens; take.lua and release_fast.lua rely on its digits
	ahead     = 20 * time.Millisecond // of the last token of a block to the clock, at most; see hooks.lua
	lineBand  = 1_000_000_000_000     // scores of the queue are below it, deadlines above it; see state.lua
)

// A name that was idle has room for the largest block.
const _ = uint(ahead/time.Microsecond - driver.MaxCallBackTokens)

// floorLife returns how long a floor lives that serves one name only; 0: for ever, as those of
// shards do.
func floorLife(single bool) time.Duration {
	if single {
		return 24 * time.Hour
	}
	return 0
}

// scripts are the scripts of one Backend.
type scripts struct {
	take, acquire, drop, release, renew, refresh, cancel, change, latch, inspect, names, forget *Script

	addHistory, history, missing *Script

	raise, keep, move, claim, yield, birth *Script // of a member of a quorum
	beat                                   *Script // of a Format
}

// files names the files in lua that make each script, in their order. load puts a header before
// them.
var files = map[string]string{
	"take":    "take",
	"acquire": "hooks acquire_fast state common acquire",
	"drop":    "drop",
	"release": "hooks release_fast state common release",
	"renew":   "renew",
	"refresh": "hooks state common refresh",
	"cancel":  "hooks state common cancel",
	"change":  "hooks state common change",
	"latch":   "hooks state common latch",
	"inspect": "hooks state common inspect",
	"names":   "names",
	"forget":  "forget",

	"history_add": "history_add",
	"history":     "history",
	"missing":     "missing",
}

// plainScripts and clusterScripts are those of a Backend that is neither a member nor has a Format.
// All such Backends of a process share them: they take 200 KB.
var (
	plainScripts   = sync.OnceValue(func() *scripts { return load(false, nil, nil, nil) })
	clusterScripts = sync.OnceValue(func() *scripts { return load(true, nil, nil, nil) })
)

// lastMember has the scripts of the last member that was made: the servers of a quorum share them.
var lastMember struct {
	sync.Mutex
	of      membership
	scripts *scripts
}

func scriptsFor(cluster bool, m *membership, f *Format) *scripts {
	switch {
	case f != nil:
		return load(cluster, m, f, nil)
	case m != nil:
		lastMember.Lock()
		defer lastMember.Unlock()
		if lastMember.scripts == nil || lastMember.of != *m {
			lastMember.of, lastMember.scripts = *m, load(cluster, m, nil, nil)
		}
		return lastMember.scripts
	case cluster:
		return clusterScripts()
	}
	return plainScripts()
}

// load assembles the scripts, for a Cluster or for one server; see guard in common.lua. If m is not
// nil, they are those of a member of a quorum; if f is not nil, they keep its keys, too. If edit is
// not nil, it changes each text, for tests.
func load(cluster bool, m *membership, f *Format, edit func(name, text string) string) *scripts {
	header := locals(
		"RETAIN", retention.Milliseconds(),
		"GRANULE", granule.Microseconds(),
		"AHEAD", ahead.Microseconds(),
		"LATCH", latchLife.Microseconds(),
		"INTEREST", interest.Microseconds(),
		"LINE", int64(lineBand),
		"MAXTOKEN", fmt.Sprintf("%016d", int64(maxToken)),
		"CLUSTER", cluster,
		"INDEX", f == nil, // else List looks at all keys
		"STAYS", f == nil, // the record of a set limit; else the other library's key tells the limit
		"FLOORLIFE", floorLife(f != nil && cluster).Milliseconds(),
	)
	script := func(name string) *Script {
		var text string
		if m == nil {
			text = header + body(cmp.Or(formatFiles(f)[name], files[name]), f)
		} else {
			text = m.script(name, header)
		}
		if edit != nil {
			text = edit(name, text)
		}
		sum := sha1.Sum([]byte(text)) // how the server addresses a script; not for security
		return &Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
	}
	s := &scripts{
		take: script("take"), drop: script("drop"),
		acquire: script("acquire"), release: script("release"), renew: script("renew"), refresh: script("refresh"),
		cancel: script("cancel"), change: script("change"), latch: script("latch"),
		inspect: script("inspect"), names: script("names"), forget: script("forget"),
		addHistory: script("history_add"), history: script("history"), missing: script("missing"),
	}
	if f != nil {
		s.beat = script("beat")
	}
	if m != nil {
		s.raise, s.keep = script("raise"), script("keep")
		s.move, s.claim, s.yield = script("move"), script("claim"), script("yield")
		s.birth = script(birth)
	}
	return s
}

// formatFiles replaces files for scripts that keep the keys of a Format: they have no fast paths.
func formatFiles(f *Format) map[string]string {
	if f == nil {
		return nil
	}
	return map[string]string{
		"acquire": "hooks slow state common acquire",
		"release": "hooks slow state common release",
		"beat":    "hooks slow state common beat",
	}
}

// body returns the text of a script. If the script uses common.lua, that file and the script's own
// text become the function that finish.lua runs; see state.lua. Common.lua has a place for the
// functions of a Format.
func body(names string, f *Format) string {
	before, own, ok := strings.Cut(names, " common ")
	if !ok {
		return join(names)
	}
	functions := join("format")
	if f != nil {
		functions = f.Lua
	}
	general := strings.Replace(join("common "+own), "--FORMAT\n", functions, 1)
	return join(before) + "\nlocal function general()" + general + "end\n" + join("finish")
}

// join returns the text of files, one after the other.
func join(names string) string {
	var text strings.Builder
	for name := range strings.FieldsSeq(names) {
		b, err := lua.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // cannot happen: the file is embedded
		}
		text.WriteString("\n")
		text.Write(b)
	}
	return text.String()
}

// locals returns a line of Lua that declares constants. pairs are names and values in turn.
func locals(pairs ...any) string {
	var names, values []string
	for i := 0; i < len(pairs); i += 2 {
		names = append(names, pairs[i].(string))
		if s, ok := pairs[i+1].(string); ok {
			values = append(values, quote(s))
		} else {
			values = append(values, fmt.Sprint(pairs[i+1]))
		}
	}
	return "local " + strings.Join(names, ", ") + " = " + strings.Join(values, ", ") + "\n"
}

// quote returns s, which may have any bytes, as a Lua string.
func quote(s string) string {
	var q strings.Builder
	q.WriteByte('\'')
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '\'' || c == '\\' {
			fmt.Fprintf(&q, "\\%03d", c)
		} else {
			q.WriteByte(c)
		}
	}
	q.WriteByte('\'')
	return q.String()
}
