//go:build unix

package stall_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stall"
)

// TestWatch stops this process for half a second.
func TestWatch(t *testing.T) {
	longest := stall.Watch()
	cmd := exec.Command("sh", "-c", fmt.Sprintf("kill -STOP %[1]d; sleep 0.5; kill -CONT %[1]d", os.Getpid()))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := longest(); got < 400*time.Millisecond {
		t.Errorf("the longest stall = %v; want half a second", got)
	}
}
