package zklock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// A session that ends while a request is in flight takes the request's nodes with it, but not the marks of a minimum
// hold. So the outcome of such a request is not known.
func TestFailedWhenTheSessionEnds(t *testing.T) {
	inFlight := fmt.Errorf("%w: %w", zk.ErrConnectionLoss, zk.ErrSessionExpired)
	for hold, want := range map[time.Duration]error{0: driver.ErrClosed, time.Hour: driver.ErrUncertain} {
		for _, state := range []state{waiting, held} {
			e := &entry{req: driver.Request{MinHold: hold}, state: state}
			if err := e.failed(t.Context(), inFlight); !errors.Is(err, want) || driver.IsFinal(err) != (hold == 0) {
				t.Errorf("minimum hold %v, state %d: %v; want %v", hold, state, err, want)
			}
		}
		e := &entry{req: driver.Request{MinHold: hold}, unsure: true}
		if err := e.failed(t.Context(), inFlight); !errors.Is(err, want) {
			t.Errorf("minimum hold %v, unsure: %v; want %v", hold, err, want)
		}
	}
}
