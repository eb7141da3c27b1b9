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

// mendedSample needs no server, and mendedOne is tried every time.
var (
	mendedSample = []string{"client-cancels-once", "client-refused-release"}
	mendedOne    = mendedSample[1:]
)

// TestMendedCaught: with each of the faults that holdfast had, a test fails.
func TestMendedCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test compiles tests and runs them")
	}
	names := mendedOne
	switch env := size(); env {
	case "":
	case "sample":
		names = mendedSample
	default:
		names = strings.Split(env, ",")
	}
	tried := 0
	for _, m := range AllMended {
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
			cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -vet=off -overlay="+overlay, "CGO_ENABLED=0") // for programs that the test builds, too
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Errorf("%s: %s of %s passes with it:\n%s", m.Bug, m.Test, m.Package, out)
			} else if !strings.Contains(string(out), "--- FAIL") {
				t.Errorf("%s of %s did not run: %v\n%s", m.Test, m.Package, err, out)
			} else {
				t.Logf("%s: %s fails, as it should", m.Bug, firstFailure(string(out)))
			}
		})
	}
	if tried == 0 && os.Getenv("HOLDFAST_TEST_MUTANTS") == "" {
		t.Error("none was tried")
	}
}

// firstFailure is the last of the first lines of out that name a test which failed.
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
