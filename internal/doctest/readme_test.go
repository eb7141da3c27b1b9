// Package doctest runs the commands and code of the documents.
package doctest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

const testCommand = "./scripts/test.sh\n"

// CI runs the test command of the README, and nothing else.
func TestCommand(t *testing.T) {
	found := false
	for _, b := range read(t, "README.md") {
		found = found || b.text == testCommand
	}
	ci, err := os.ReadFile(filepath.Join(root, ".ci/run"))
	if err != nil {
		t.Fatal(err)
	}
	if !found || !strings.HasSuffix(string(ci), "\nexec "+testCommand) {
		t.Errorf("README.md and .ci/run do not agree on %q:\n%s", testCommand, ci)
	}
}

// Links of the documents lead to existing files, and to existing headings.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^):]*))?\)`)
	docs, _ := filepath.Glob(filepath.Join(root, "*.md"))
	docs = append(docs, filepath.Join(root, "examples/README.md"))
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			docs = append(docs, path)
		}
		return err
	})
	if err != nil || len(docs) < 30 {
		t.Fatalf("%v: %q", err, docs)
	}
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to := doc
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(doc), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: link to %s: %v", doc, m[1], err)
			} else if m[2] != "" && !headings(t, to)[m[2]] {
				t.Errorf("%s: link to %s: there is no heading %s", doc, to, m[2])
			}
		}
	}
}

// The indexes link to every page.
func TestIndex(t *testing.T) {
	for pages, index := range map[string]string{"docs/*.md": "docs/README.md", "docs/tasks/*.md": "docs/README.md",
		"docs/move/*.md": "docs/move/README.md"} {
		text, err := os.ReadFile(filepath.Join(root, index))
		if err != nil {
			t.Fatal(err)
		}
		all, err := filepath.Glob(filepath.Join(root, pages))
		if err != nil || len(all) < 5 {
			t.Fatalf("%s: %v %q", pages, err, all)
		}
		for _, page := range all {
			name, err := filepath.Rel(filepath.Join(root, filepath.Dir(index)), page)
			if err != nil {
				t.Fatal(err)
			}
			if name != "README.md" && !strings.Contains(string(text), "]("+name+")") {
				t.Errorf("%s does not link to %s", index, name)
			}
		}
	}
}

// headings returns the anchors of a document's headings, as GitHub makes them.
func headings(t *testing.T, doc string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		all[anchor(m[1])] = true
	}
	return all
}

func anchor(heading string) string {
	plain := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(plain, " ", "-")
}

// The tests that docs/testing.md names exist.
func TestNamesOfTests(t *testing.T) {
	there := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)[`/]").FindAllStringSubmatch(string(text), -1)
	if len(named) < 50 {
		t.Fatalf("only %d names found: the search is broken", len(named))
	}
	for _, m := range named {
		if !there[m[1]] {
			t.Errorf("docs/testing.md names %s, which does not exist", m[1])
		}
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
