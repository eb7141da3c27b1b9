package observe_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/observe"
)

func TestClass(t *testing.T) {
	for name, want := range map[string]string{
		"deploy/prod":                          "deploy/prod",
		"order/42":                             "order/*",
		"v2/order/42":                          "v*/order/*",
		"2026-11-24":                           "*-*-*",
		"550e8400-e29b-41d4-a716-446655440000": "*",
		"user:550E8400-E29B-41D4-A716-446655440000:lock": "user:*:lock",
		"550e8400-e29b-41d4-a716-4466554400001":          "*-e*b-*d*-a*-*", // no UUID: it is too long
		"build/deadbeef01":                               "build/*",
		"build/facade":                                   "build/facade",
		"job/defaced":                                    "job/defaced",
		"job/effacedbee":                                 "job/effacedbee", // a hexadecimal word without a digit
		"ulid/01ARZ3NDEKTSV4RRFFQ69G5FAV":                "ulid/*",
		"quarterly-report-2025Q3":                        "quarterly-report-*Q*",
		"zähler/٣٤":                                      "zähler/*",
		"":                                               "",
		"a*1":                                            "a*",
	} {
		if got := observe.Class(name); got != want {
			t.Errorf("Class(%q) is %q, want %q", name, got, want)
		}
	}
}

func FuzzClass(f *testing.F) {
	f.Add("order/42")
	f.Add("550e8400-e29b-41d4-a716-446655440000")
	f.Add("\xff1")
	f.Fuzz(func(t *testing.T, name string) {
		class := observe.Class(name)
		if strings.ContainsAny(class, "0123456789") {
			t.Errorf("Class(%q) is %q", name, class)
		}
		if again := observe.Class(class); again != class {
			t.Errorf("Class(%q) is %q, and of that %q", name, class, again)
		}
		if utf8.ValidString(name) && !utf8.ValidString(class) {
			t.Errorf("Class(%q) is %q", name, class)
		}
	})
}

// The number of classes is bounded, also if many names come at once.
func TestClassesAreBounded(t *testing.T) {
	c := observe.NewClasses(func(name string) string { return name }, 10)
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 1000 {
				class := c.Of(fmt.Sprintf("%d-%d", i, j))
				mu.Lock()
				seen[class] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != 11 || !seen[observe.Other] {
		t.Errorf("%d classes, want 10 and %q", len(seen), observe.Other)
	}
	for class := range seen {
		if got := c.Of(class); got != class {
			t.Errorf("the class %q has become %q", class, got)
		}
	}
}

func TestClassesOfABadFunction(t *testing.T) {
	c := observe.NewClasses(func(name string) string {
		if name == "bad" {
			panic("of a function")
		}
		return name + "\xff"
	}, 0)
	if got := c.Of("bad"); got != observe.Other {
		t.Errorf("the class of a name for which the function panics is %q", got)
	}
	if got := c.Of("x"); !utf8.ValidString(got) {
		t.Errorf("%q is no UTF-8", got)
	}
}
