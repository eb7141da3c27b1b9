package fence_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The document shows the code that is compiled and the figures that are measured.
func TestDocument(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		must(t, err)
		return string(text)
	}
	doc := read("../../docs/fencing.md")
	var code []string
	for _, m := range regexp.MustCompile("(?ms)^```go\n(.*?)\n```$").FindAllStringSubmatch(doc, -1) {
		code = append(code, m[1])
	}

	example := read("example_test.go")
	if len(code) == 0 || slices.ContainsFunc(code, func(b string) bool {
		return !strings.Contains(example, "\n"+b+"\n")
	}) {
		t.Errorf("example_test.go lacks the Go code of the document:\n%s", strings.Join(code, "\n"))
	}

	figures := fmt.Sprintf("in %d orders. A check at the write loses\nupdates in %d of the %d orders, %d updates in all",
		allOrders, lossyOrders, allOrders, lostUpdates)
	if !strings.Contains(doc, figures) {
		t.Errorf("the document lacks %q", figures)
	}
}
