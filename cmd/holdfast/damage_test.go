//go:build unix

package main_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// ls lists a damaged record among the others; commands for its name fail.
func TestDamagedRecord(t *testing.T) {
	b := newBench(t)
	server := mariaDB(t)
	own := database(t, server)
	b.initialise(mySQLURL(server.Addr, "root", own))
	for _, name := range []string{"one", "two", "three"} {
		b.want(0, "run", "--min-hold", "1h", name, "--", "true")
	}
	server.Exec(`UPDATE ` + own + `.hf_lock SET ver = ver + 1, more = 'nonsense\n\033[2J', kind = 1 WHERE name = 'three'`)
	out, _ := b.want(0, "ls")
	if !regexp.MustCompile(`(?m)^NAME .*\none .*\nthree  damaged: \S.* -\ntwo .*\n$`).MatchString(out) ||
		strings.Contains(out, "\033") {
		t.Errorf("%q", out)
	}
	var list struct {
		Locks []struct{ Name, Damaged string }
	}
	out, _ = b.want(0, "ls", "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Locks) != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, l := range list.Locks {
		if (l.Damaged != "") != (l.Name == "three") {
			t.Errorf("%+v", l)
		}
	}
	for _, args := range [][]string{{"info", "three"}, {"run", "-n", "three", "--", "true"}} {
		if _, stderr := b.want(77, args...); !strings.Contains(stderr, "damaged record") ||
			strings.Count(stderr, "\n") != 1 || strings.Contains(stderr, "\033") {
			t.Errorf("%q: %q", args, stderr)
		}
	}
	b.want(75, "run", "-n", "two", "--", "true")
}
