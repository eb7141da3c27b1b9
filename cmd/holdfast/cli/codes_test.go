package cli

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The documents, the program and --accept have the same codes.
func TestDoctorCodes(t *testing.T) {
	files, err := filepath.Glob("../../../*lock/*doctor*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"../../../*lock/*/doctor*.go", "doctor*.go"} {
		more, _ := filepath.Glob(pattern)
		files = append(files, more...)
	}
	program := map[string]bool{}
	whole := regexp.MustCompile(`"((?:lock|memory|redis|quorum|mysql|postgres|zookeeper|sqlite)\.[a-z-]+)"`)
	part := regexp.MustCompile(`ame(?:\(\))? ?\+ ?"\.([a-z-]+)"`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range whole.FindAllStringSubmatch(string(text), -1) {
			program[m[1]] = true
		}
		for _, m := range part.FindAllStringSubmatch(string(text), -1) {
			program["mysql."+m[1]], program["postgres."+m[1]] = true, true
		}
	}
	text, err := os.ReadFile("../../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), "|")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, m := range regexp.MustCompile("`([a-z]+\\.[a-z-]+)`").FindAllStringSubmatch(first, -1) {
			documented[m[1]] = true
		}
	}
	got, want := slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(program))
	if len(want) < 50 || !slices.Equal(got, want) {
		t.Errorf("documented: %q\nin the program: %q", got, want)
	}
	if taken := slices.Sorted(slices.Values(codes)); !slices.Equal(taken, want) {
		t.Errorf("--accept takes %q\nin the program: %q", taken, want)
	}
}
