//go:build unix

package verify

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A hook runs with start and with stop. It does not wait for processes that it left behind.
func TestHook(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	h := Hook("x", "sleep 100 & echo $! >>"+log+"; echo >>"+log)
	heal, err := h.Inject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(log)
	words := strings.Fields(string(text))
	if err != nil || len(words) != 4 || words[1] != "start" || words[3] != "stop" {
		t.Errorf("%v: %q", err, text)
	}
	for _, pid := range []int{0, 2} {
		if n, err := os.FindProcess(atoi(t, words[pid])); err == nil {
			_ = n.Kill()
		}
	}
}

// A hook gets the URL without its password, as a command under a lock does.
func TestHookGetsNoPassword(t *testing.T) {
	t.Setenv("HOLDFAST_URL", "redis://user:c4nary@h:1/2")
	_, err := Hook("x", `echo $HOLDFAST_URL; env | grep c4nary; false #`).Inject(t.Context())
	if err == nil || !strings.Contains(err.Error(), "redis://user@h:1/2") || strings.Contains(err.Error(), "c4nary") {
		t.Errorf("%v", err)
	}
}

func atoi(t *testing.T, s string) (n int) {
	t.Helper()
	for _, c := range s {
		if c < '0' || c > '9' {
			t.Fatalf("%q is not a number", s)
		}
		n = 10*n + int(c-'0')
	}
	return n
}

// The error has the output of a failed hook, and the hook can be stopped all the same.
func TestHookFails(t *testing.T) {
	heal, err := Hook("x", "echo words; false").Inject(t.Context())
	if err == nil || !strings.Contains(err.Error(), "hook x start") || !strings.Contains(err.Error(), "words") ||
		heal == nil {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Hook("x", "sleep 100; :").Inject(ctx); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("%v", err)
	}
}
