package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// pkg is a package with tests.
type pkg struct {
	module, path string
	dir          string
	weight       int      // about how long it takes, in seconds
	timed        bool     // it has timed tests
	plain        bool     // tested without the race detector
	steps        []string // its tests of steps, which a second entry runs
	onlySteps    bool     // that entry
}

// longest are the packages that take longest, in seconds on two cores. They start first: if one
// started last, it would run alone at the end. Wrong figures cost only time.
var longest = map[string]int{
	"tests/redislock": 420, "cmd/holdfast": 320, "zklock": 300, "sqllock/postgres": 260, "sqllock/mysql": 190,
	"internal/zk": 180, "tests/quorum": 130, "tests/faults": 130, "internal/testenv": 120, "sqllock/sqlite": 110,
	"interop/redisson": 130, "cmd/holdfast/lab": 80, "open": 70, "interop": 60, "redislock/quorum": 60,
	"cmd/holdfast/verify": 50, "bench": 50, "examples": 50,
	"cmd/holdfast/torture": 40, "tests/release": 40, "model": 40, "cmd/holdfast/mutant": 30, "tests/torture": 30,
	"tests/fence": 20, "internal/doctest": 20, "tests/testenv": 10, "internal/archtest": 10, "internal/testrun": 10,
}

// find lists the packages of the modules that have tests, the longest first. steps matches the
// tests of steps, each as its package's path, a dot, and its name.
func find(modules []string, steps *regexp.Regexp) ([]pkg, error) {
	var all []pkg
	for _, m := range modules {
		cmd := exec.Command("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}",
			"./...")
		cmd.Dir, cmd.Stderr = m, os.Stderr
		list, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list in %s: %w", m, err)
		}
		for line := range strings.Lines(string(list)) {
			path, dir, ok := strings.Cut(strings.TrimSpace(line), "\t")
			if !ok {
				continue
			}
			p := pkg{module: m, path: path, dir: dir}
			names, err := testNames(dir)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				p.timed = p.timed || strings.HasPrefix(name, timedPrefix)
				if steps.MatchString(path + "." + name) {
					p.steps = append(p.steps, name)
				}
			}
			for name, weight := range longest {
				if strings.HasSuffix(path, "/"+name) {
					p.weight = max(p.weight, weight)
				}
			}
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b pkg) int { return cmp.Compare(b.weight, a.weight) })
	return all, nil
}

// timedPrefix begins the names of timed tests.
const timedPrefix = "TestTimed"

// testNames returns the names of the tests in dir.
func testNames(dir string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, f := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.SkipObjectResolution)
		if err != nil {
			continue // go test reports the error
		}
		for _, d := range parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				names = append(names, fn.Name.Name)
			}
		}
	}
	return names, err
}
