package fence_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/fence"
)

// The document shows the code that is compiled, the statements that are run and the figures that
// are measured.
func TestDocument(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		must(t, err)
		return string(text)
	}
	doc := read("../docs/fencing.md")
	blocks := func(language string) (found []string) {
		for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)\n```$").FindAllStringSubmatch(doc, -1) {
			found = append(found, m[1])
		}
		return found
	}

	example := read("example_test.go")
	code := blocks("go")
	if len(code) == 0 || slices.ContainsFunc(code, func(b string) bool { return !strings.Contains(example, "\n"+b+"\n") }) {
		t.Errorf("example_test.go lacks the Go code of the document:\n%s", strings.Join(code, "\n"))
	}

	want := []string{fence.Schema(fence.MySQL), fence.Schema(fence.PostgreSQL), fence.Schema(fence.SQLite)}
	for _, s := range fence.Statements {
		want = append(want, strings.NewReplacer("x'%x'", "?", "%d", "?", "%[2]d", "?").Replace(s))
	}
	if got := blocks("sql"); !slices.Equal(got, want) {
		t.Errorf("the document's statements are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	figures := fmt.Sprintf("in %d orders. A check at the write loses\nupdates in %d of the %d orders, %d updates in all",
		allOrders, lossyOrders, allOrders, lostUpdates)
	if !strings.Contains(doc, figures) {
		t.Errorf("the document lacks %q", figures)
	}
}
