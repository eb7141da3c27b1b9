//go:build unix

package main_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// watch shows who takes and frees locks, in lines for people and for programs.
func TestWatch(t *testing.T) {
	onStores(t, "mysql", func(b *bench) {
		b.want(0, "run", "p/first", "--", "true") // creates the embedded store
		holder := b.stay("held", "p/held")
		b.file("held")
		text := b.start("--ttl", "3s", "watch", "p/")
		lines := b.start("--ttl", "3s", "watch", "p/", "-o", "jsonl")
		seen := ""
		sees := func(pattern string) {
			b.Helper()
			seen += `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z  ` + pattern + `\n`
			b.until(pattern, func() bool { return regexp.MustCompile("^" + seen + "$").MatchString(text.out.String()) })
		}
		sees(`held     p/held  by \S+ "\S+" token \d+`)
		b.until("it is ready", func() bool { return strings.Contains(lines.out.String(), `"event":"ready"`) })
		b.want(0, "latch", "set", "p/l", "2")
		sees(`count    p/l  2 left`)
		// Names whose changes are read together are in no order.
		b.until("the same in JSON", func() bool { return strings.Contains(lines.out.String(), `"event":"count"`) })
		b.want(0, "latch", "set", "other", "2")
		holder.end()
		sees(`free     p/held  no longer by \S+ "\S+" token \d+, nobody holds it`)
		b.until("the same in JSON", func() bool { return strings.Count(lines.out.String(), `"event":"free"`) == 1 })
		b.want(0, "latch", "rm", "p/l")
		sees(`free     p/l  not in use any more`)
		b.until("the same in JSON", func() bool { return strings.Count(lines.out.String(), "\n") == 5 })
		var events []string
		for line := range strings.Lines(lines.out.String()) {
			var j struct {
				Schema, Event  string
				Initial        bool
				Granted, Ended []struct{ Token string }
				Lock           struct{ Name string }
			}
			if err := json.Unmarshal([]byte(line), &j); err != nil || j.Schema != "holdfast/v1" {
				b.Errorf("%v: %s", err, line)
			}
			if j.Initial {
				j.Event = "initial " + j.Event
			}
			for range j.Granted {
				j.Event += " +"
			}
			for range j.Ended {
				j.Event += " -"
			}
			events = append(events, strings.TrimSpace(j.Event+" "+j.Lock.Name))
		}
		want := "initial held + p/held; initial ready; count p/l; free - p/held; free p/l"
		if got := strings.Join(events, "; "); got != want {
			b.Errorf("events %s; want %s", got, want)
		}
		for _, p := range []*process{text, lines} {
			p.end()
		}
		b.want(64, "watch", "a", "b")
		b.want(64, "watch", "-o", "table")
	})
}
