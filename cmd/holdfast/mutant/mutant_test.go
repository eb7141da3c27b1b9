package mutant

import (
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the repository's.
const root = "../../.."

// TestMutantsApply: each change applies at its place, and its result is well formed.
func TestMutantsApply(t *testing.T) {
	word := regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`)
	seen := map[string]bool{}
	for _, m := range All {
		if !word.MatchString(m.ID) || seen[m.ID] || m.Bug == "" || len(m.Class) == 0 || m.Store == "" {
			t.Errorf("%+v: each needs a name of its own, a bug, a class and a store", m)
		}
		seen[m.ID] = true
		files, err := m.Changed(root)
		if err != nil {
			t.Error(err)
		}
		for name, text := range files {
			if filepath.Ext(name) != ".go" {
				continue
			}
			if _, err := parser.ParseFile(token.NewFileSet(), name, text, 0); err != nil {
				t.Errorf("%s: %v", m.ID, err)
			}
			if _, err := format.Source([]byte(text)); err != nil {
				t.Errorf("%s: %v", m.ID, err)
			}
		}
		for _, e := range m.Edits {
			if strings.HasSuffix(e.File, "_test.go") {
				t.Errorf("%s changes a test", m.ID)
			}
		}
	}
	for _, m := range AllRegressions {
		if m.ID == "" || seen[m.ID] || m.Bug == "" || m.Package == "" || m.Test == "" {
			t.Errorf("%+v: each needs a name of its own, a fault and a test", m)
		}
		seen[m.ID] = true
		if _, err := m.Changed(root); err != nil {
			t.Error(err)
		}
	}
	if len(All) < 30 {
		t.Errorf("only %d mutants", len(All))
	}
}

// TestDocumented: the tables of docs/reliability.md match the mutants and regressions.
func TestDocumented(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs/reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| bug | on | what is wrong | must be found as |\n|---|---|---|---|\n")
	for _, m := range All {
		classes := make([]string, len(m.Class))
		for i, c := range m.Class {
			classes[i] = string(c)
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", m.ID, m.Store, m.Bug, strings.Join(classes, " or "))
	}
	if !strings.Contains(string(b), want.String()) {
		t.Errorf("the table of bugs should be:\n%s", want.String())
	}
	if n := fmt.Sprintf("%d bugs", len(All)); !strings.Contains(string(b), n) {
		t.Errorf("it does not contain %q", n)
	}
	want.Reset()
	want.WriteString("| fault | what is wrong | test that must fail |\n|---|---|---|\n")
	for _, m := range AllRegressions {
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", m.ID, m.Bug, m.tests())
	}
	if !strings.Contains(string(b), want.String()) {
		t.Errorf("the table of fixed faults should be:\n%s", want.String())
	}
}
