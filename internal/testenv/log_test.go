package testenv

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// failing is set in the process whose tests must fail.
const failing = "HOLDFAST_TESTENV_FAILING"

// A failing test shows the output of each of its servers once; a passing test shows nothing.
func TestLogsOfFailures(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test starts servers")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFailsElsewhere$", "-test.v")
	cmd.Env = append(os.Environ(), failing+"=1")
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err == nil {
		t.Fatalf("no test failed:\n%s", text)
	}
	for name, want := range map[string]int{"own": 1, "passes": 0, "shared": 1} {
		_, addr, ok := strings.Cut(text, "the server of "+name+" is at ")
		addr, _, _ = strings.Cut(addr, "\n")
		heading := "what the Redis server at " + strings.TrimSpace(addr) + " has printed last:"
		if n := strings.Count(text, heading); !ok || n != want {
			t.Errorf("%s: %q occurs %d times; want %d", name, heading, n, want)
		}
	}
	// Both servers ran when their logs were shown.
	if n := strings.Count(text, "Ready to accept connections"); n < 2 {
		t.Errorf("the logs show %d starts", n)
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestFailsElsewhere fails in the process that TestLogsOfFailures starts.
func TestFailsElsewhere(t *testing.T) {
	if os.Getenv(failing) == "" {
		return
	}
	shared := Shared(func(t testing.TB) *RedisServer { return Redis(t) })
	defer endShared()
	t.Run("own", func(t *testing.T) {
		r := Redis(t)
		r.Restart(true)
		t.Errorf("the server of own is at %s", r.Addr)
	})
	t.Run("passes", func(t *testing.T) {
		_ = shared(t)
		t.Logf("the server of passes is at %s", Redis(t).Addr)
	})
	t.Run("shared", func(t *testing.T) {
		_ = shared(t)
		t.Errorf("the server of shared is at %s", shared(t).Addr)
	})
}

func TestLastLines(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "\n": "", "a": "a", "a\n": "a", "a\nb\n": "a\nb", "a\nb\nc\n": "b\nc", "a\n\nc": "\nc",
	} {
		if got := lastLines(text, 2); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
