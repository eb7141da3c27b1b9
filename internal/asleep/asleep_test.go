package asleep_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/asleep"
)

func TestTotal(t *testing.T) {
	a := asleep.Total()
	time.Sleep(10 * time.Millisecond)
	if d := asleep.Total() - a; d < -time.Millisecond || d > 5*time.Millisecond {
		t.Errorf("the reading moved by %v on a machine that did not sleep", d)
	}
}
