package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// judge finds in each recorded history the class that its file name begins with, and nothing in the
// good ones.
func TestJudge(t *testing.T) {
	files, err := filepath.Glob("../internal/history/testdata/*.jsonl")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		class, _, _ := strings.Cut(filepath.Base(file), "_")
		args := []string{"judge", file, "--min-grants", "1", "--min-faults", "0", "-o", "json"}
		code, out, stderr := try(args...)
		var r verifyJSON
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%s: %v: %s%s", file, err, out, stderr)
		}
		found := ""
		for _, v := range r.Classes {
			if v.Count > 0 || v.Outcome == "inconclusive" {
				found = v.Class
			}
		}
		want := exitViolation
		switch class {
		case "good":
			class, want = "", 0
		case "V":
			want = exitInconclusive
		}
		if code != want || found != class {
			t.Errorf("%s: exit code %d, want %d; class %q: %s", file, code, want, found, stderr)
		}
	}
}

// A history that proves nothing is inconclusive; one that cannot be read is an error with its file
// and line.
func TestJudgeInput(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, lines ...string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	grant := func(t, ttl string) []string {
		return []string{`{"t":1` + t + `,"kind":"acquire","client":"a","id":"1","name":"x","ttl":` + ttl + `}`,
			`{"t":3` + t + `,"kind":"granted","client":"a","id":"1","name":"x"}`}
	}
	good := grant("000000", "1000000000")
	for _, c := range []struct {
		what string
		code int
		says string
		args []string
	}{
		{"clean", 0, "verdict     clean", []string{file("good", good...), "--min-grants", "1", "--min-faults", "0"}},
		{"nothing to check", 0, "S4  tokens are unique and grow: not checked: no grant has a token",
			[]string{dir + "/good", "--min-grants", "1", "--min-faults", "0"}},
		{"as many grants and faults as verify", 2, "1 grant; at least 50 are needed", []string{dir + "/good"}},
		{"nothing", 2, "0 grants", []string{file("none")}},
		{"a ttl in milliseconds", 2, "ttl is in nanoseconds",
			[]string{file("ttl", grant("000000", "1000")...), "--min-grants", "1", "--min-faults", "0"}},
		{"times in milliseconds", 2, "t is in nanoseconds",
			[]string{file("t", grant("", "1000000000")...), "--min-grants", "1", "--min-faults", "0"}},
		{"no JSON", 64, dir + "/words:3: ", []string{file("words", append(good, "words")...)}},
		{"an unknown kind", 64, dir + `/kind:1: kind "grant" is not known`, []string{file("kind", `{"t":1,"kind":"grant"}`)}},
		{"an unknown field", 64, `unknown field "ttl_ms"`, []string{file("field", `{"t":1,"kind":"run","ttl_ms":5}`)}},
		{"no file", 64, "no such file", []string{dir + "/missing"}},
		{"an empty folder", 64, "no .jsonl file", []string{dir}},
		{"twice", 64, "named twice", []string{dir + "/good", dir + "/good"}},
		{"no argument", 64, "a file is missing", nil},
		{"a class", 64, "S1 to S5", []string{dir + "/good", "--except", "V"}},
		{"a margin", 64, "--margin", []string{dir + "/good", "--margin", "-1s"}},
		{"a slack", 64, "--slack", []string{dir + "/good", "--slack", "0s"}},
	} {
		code, out, stderr := try(append([]string{"judge"}, c.args...)...)
		if code != c.code || !strings.Contains(out+stderr, c.says) {
			t.Errorf("%s: exit code %d, want %d: %s%s", c.what, code, c.code, out, stderr)
		}
	}
}

// Texts of other programs cannot imitate the report, nor control a terminal.
func TestJudgeTexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	const event = `{"t":1,"kind":"run","text":"x\nverdict     clean\u001b[2J"}` + "\n"
	if err := os.WriteFile(path, []byte(event), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, _ := try("judge", path)
	if code != exitInconclusive || strings.Contains(out, "\nverdict     clean") || strings.Contains(out, "\x1b") {
		t.Errorf("%d %q", code, out)
	}
}
