package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

func TestDoctorText(t *testing.T) {
	d := &diagnosis{place: "redis:h:1#0", ttl: 15 * time.Second, accepted: map[string]bool{"a.known": true},
		list: []driver.Finding{
			{Code: "a.bad", Severity: driver.Endangers, Server: "h:1", Found: "it is \x1b[2J bad\nindeed",
				Why: strings.Repeat("words and more ", 12), Do: "set averyveryverylongsettingthatdoesnotfitintooneline=1"},
			{Code: "a.known", Severity: driver.Endangers, Server: "h:2", Found: "as ever", Why: "x", Do: "y"},
			{Code: "a.good", Found: "good"},
		}}
	for _, columns := range []int{0, 40, 80, 3} {
		text := d.text(columns)
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			words := strings.Fields(line)
			last := ""
			if len(words) > 0 {
				last = words[len(words)-1]
			}
			// One word may be longer than the line.
			if columns > 0 && len(line) >= columns && len(line)-len(last) > max(columns, 12) {
				t.Errorf("%d columns: %q", columns, line)
			}
			if strings.ContainsAny(line, "\x1b\t") {
				t.Errorf("%q", line)
			}
		}
		if columns == 0 && (strings.Count(text, "\n") != 15 ||
			!strings.Contains(text, "ENDANGERS  a.bad at h:1\n  found    it is \\x1b[2J bad indeed\n")) {
			t.Errorf("%d lines: %s", strings.Count(text, "\n"), text)
		}
		if !strings.Contains(text, "accepted   a.known") ||
			!strings.HasSuffix(strings.Join(strings.Fields(text), " "),
				"1 endanger locks, 0 unknown, 0 slow them, 1 fine, 1 accepted") {
			t.Error(text)
		}
	}
}

// A refusal by one server of a quorum has the same advice as one by the majority.
func TestDoctorAdvisesServers(t *testing.T) {
	list := []driver.Finding{
		{Code: "quorum.reach", Do: "as it was",
			Found: "it cannot be used: refused by the store: … (NOPERM no permissions to run the 'evalsha' command)"},
		{Code: "quorum.reach", Do: "as it was", Found: "it cannot be used: store unavailable: connection refused"},
		{Code: "redis.users", Do: "as it was", Found: "(NOPERM run the 'info' command)"},
	}
	(&app{store: "redis+quorum://u:p@h:1,h:2,h:3"}).adviseServers(list)
	if !strings.Contains(list[0].Do, ": ACL SETUSER u +evalsha ") || list[1].Do != "as it was" ||
		list[2].Do != "as it was" {
		t.Errorf("%+v", list)
	}
}
