package history

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// classesOf returns the classes with violations.
func classesOf(r *Report) (list []Class) {
	for _, v := range r.Verdicts {
		if v.Count > 0 {
			list = append(list, v.Class)
		}
	}
	return list
}

// TestHandMade: each file of testdata is judged as its name says: good, or the one class that is
// violated. V means a run without a violation that proves nothing.
func TestHandMade(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[Class]int{}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".jsonl")
		t.Run(name, func(t *testing.T) {
			events, err := ReadFiles(path)
			if err != nil {
				t.Fatal(err)
			}
			r := Check(events, Options{})
			class, _, _ := strings.Cut(name, "_")
			seen[Class(class)]++
			var want []Class
			outcome := Clean
			switch class {
			case "good":
			case "V":
				outcome = Inconclusive
			default:
				want, outcome = []Class{Class(class)}, Violated
			}
			if r.Outcome != outcome || !slices.Equal(classesOf(r), want) {
				t.Errorf("%s, violations of %v; want %s, %v\n%s", r.Outcome, classesOf(r), outcome, want, r)
			}
			for _, v := range r.Violations() {
				if v.Text == "" || len(v.Events) == 0 || len(v.Events) > 12 {
					t.Errorf("%q is shown by %d events", v.Text, len(v.Events))
				}
			}
			for _, o := range []Options{{Except: want}} {
				if r := Check(events, o); class != "V" && r.Outcome != Clean {
					t.Errorf("with %v excepted: %s", want, r)
				}
			}
		})
	}
	for _, class := range append(Classes, "good") {
		if seen[class] < 2 && class != L3 {
			t.Errorf("only %d histories of class %s", seen[class], class)
		}
	}
}
