package redislock

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

//go:embed lua/*.lua
var lua embed.FS

const (
	// retention is how long a name is remembered after its last lease has run out. It is
	// longer than two granules: see mint.
	retention = time.Minute

	latchLife = 24 * time.Hour   // after its last touch
	interest  = time.Hour        // how long a latch remembers who awaits it, at least
	granule   = 10 * time.Second // in which the floor of the tokens is kept; take.lua and release.lua know it, too
)

// scripts are the scripts of one Backend.
type scripts struct {
	take, acquire, drop, release, renew, refresh, cancel, change, latch, inspect, names, forget *Script

	raise, move, claim, yield *Script // of a member of a quorum
}

// load assembles the scripts, for a Cluster or for one server; see guard in common.lua. m, if not nil, makes
// them those of a member of a quorum. edit, if not nil, changes the text of each, for tests.
func load(cluster bool, m *membership, edit func(name, text string) string) *scripts {
	common := read("common")
	values := strings.NewReplacer(
		"RETAIN", fmt.Sprint(retention.Milliseconds()),
		"GRANULE", fmt.Sprint(granule.Microseconds()),
		"LATCH", fmt.Sprint(latchLife.Microseconds()),
		"INTEREST", fmt.Sprint(interest.Microseconds()),
		"CLUSTER", fmt.Sprint(cluster),
	)
	script := func(name string) *Script {
		text := values.Replace(m.script(name, common))
		if edit != nil {
			text = edit(name, text)
		}
		sum := sha1.Sum([]byte(text)) // the server's name for it, no secret
		return &Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
	}
	s := &scripts{
		take: script("take"), drop: script("drop"),
		acquire: script("acquire"), release: script("release"), renew: script("renew"), refresh: script("refresh"),
		cancel: script("cancel"), change: script("change"), latch: script("latch"),
		inspect: script("inspect"), names: script("names"), forget: script("forget"),
	}
	if m != nil {
		s.take = script("member_take")
		s.raise, s.move, s.claim, s.yield = script("member_raise"), script("member_move"), script("member_claim"), script("member_yield")
	}
	return s
}

func read(name string) string {
	b, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}
