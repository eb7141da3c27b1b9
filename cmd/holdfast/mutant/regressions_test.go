package mutant

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// regressionSample needs no server, and regressionOne runs every time.
var (
	regressionSample = []string{"client-cancels-once", "client-refused-release"}
	regressionOne    = regressionSample[1:]
)

// TestRegressionsCaught: with each fault that holdfast had, a test fails.
func TestRegressionsCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test compiles tests and runs them")
	}
	names := regressionOne
	switch env := size(); env {
	case "":
	case "sample":
		names = regressionSample
	default:
		names = strings.Split(env, ",")
	}
	tried := 0
	for _, m := range AllRegressions {
		if !slices.Contains(names, m.ID) && !slices.Contains(names, "full") {
			continue
		}
		tried++
		t.Run(m.ID, func(t *testing.T) {
			overlay, err := m.Overlay(root, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			dir, pkg := root, "./"+m.Package
			if strings.HasPrefix(m.Package, "cmd/holdfast") {
				dir, pkg = filepath.Join(root, "cmd/holdfast"), "."+strings.TrimPrefix(m.Package, "cmd/holdfast")
			}
			cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=4m", "-run", m.Test, pkg)
			cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
			// For programs that the test builds, too.
			cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -vet=off -overlay="+overlay, "CGO_ENABLED=0")
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Errorf("%s: %s of %s passes with the fault:\n%s", m.Bug, m.Test, m.Package, out)
			} else if !strings.Contains(string(out), "--- FAIL") {
				t.Errorf("%s of %s did not run: %v\n%s", m.Test, m.Package, err, out)
			} else {
				t.Logf("%s: %s fails, as it should", m.Bug, firstFailure(string(out)))
			}
		})
	}
	if tried == 0 && os.Getenv("HOLDFAST_TEST_MUTANTS") == "" {
		t.Error("no regression was tested")
	}
}

// firstFailure returns the last of the first lines of out that name a failed test.
func firstFailure(out string) (name string) {
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			name, _, _ = strings.Cut(rest, " (")
		} else if name != "" {
			break
		}
	}
	return name
}
