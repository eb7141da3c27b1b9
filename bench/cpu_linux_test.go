package main

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// TestFamilyCPUWhileChildrenEnd: no reading lacks the time of a child that ends at that moment.
func TestFamilyCPUWhileChildrenEnd(t *testing.T) {
	const ticks = 20 * time.Millisecond // the time of ended children is known in ticks
	var last time.Duration
	for range 8 {
		child := exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
		servers.Bind(child)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- child.Wait() }()
		for running := true; running; {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatal(err)
				}
				running = false
			default:
			}
			used, err := familyCPU(os.Getpid())
			if err != nil {
				t.Fatal(err)
			}
			if used < last-ticks {
				t.Errorf("%v, after %v", used, last)
			}
			last = max(last, used)
		}
	}
}
