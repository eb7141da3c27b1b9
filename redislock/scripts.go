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
}

// load assembles the scripts, for a Cluster or for one server; see guard in common.lua. edit, if not nil, changes the text of each, for tests.
func load(cluster bool, edit func(name, text string) string) *scripts {
	common := read("common")
	values := strings.NewReplacer(
		"RETAIN", fmt.Sprint(retention.Milliseconds()),
		"GRANULE", fmt.Sprint(granule.Microseconds()),
		"LATCH", fmt.Sprint(latchLife.Microseconds()),
		"INTEREST", fmt.Sprint(interest.Microseconds()),
		"CLUSTER", fmt.Sprint(cluster),
	)
	script := func(name string) *Script {
		text := values.Replace(strings.Replace(read(name), "--COMMON\n", common, 1))
		if edit != nil {
			text = edit(name, text)
		}
		sum := sha1.Sum([]byte(text)) // the server's name for it, no secret
		return &Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
	}
	return &scripts{
		take: script("take"), drop: script("drop"),
		acquire: script("acquire"), release: script("release"), renew: script("renew"), refresh: script("refresh"),
		cancel: script("cancel"), change: script("change"), latch: script("latch"),
		inspect: script("inspect"), names: script("names"), forget: script("forget"),
	}
}

func read(name string) string {
	b, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}
