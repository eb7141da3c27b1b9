//go:build unix

package drivertest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestStalls stops this process for half a second.
func TestStalls(t *testing.T) {
	longest := stalls()
	cmd := exec.Command("sh", "-c", fmt.Sprintf("kill -STOP %[1]d; sleep 0.5; kill -CONT %[1]d", os.Getpid()))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := longest(); got < 400*time.Millisecond {
		t.Errorf("the longest stall = %v; want half a second", got)
	}
}
