package asleep_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/asleep"
)

func TestTotal(t *testing.T) {
	a := asleep.Total()
	time.Sleep(200 * time.Millisecond)
	if d := asleep.Total() - a; d < -100*time.Millisecond || d > 100*time.Millisecond {
		t.Errorf("the reading moved by %v on a machine that did not sleep", d)
	}
}
