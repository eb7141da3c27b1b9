package driver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

// NotCallers hides the end of a context, and nothing else. Its text mentions no deadline, which
// nobody has set.
func TestNotCallers(t *testing.T) {
	for ended, text := range map[error]string{
		context.Canceled:         "outcome unknown: no answer: context canceled",
		context.DeadlineExceeded: "outcome unknown: no answer: no answer in time",
	} {
		inner := fmt.Errorf("%w: no answer: %w", driver.ErrUncertain, ended)
		err := fmt.Errorf("release: %w", driver.NotCallers(inner))
		if errors.Is(err, ended) {
			t.Errorf("%v is the end of a context", err)
		}
		if !errors.Is(err, driver.ErrUncertain) || err.Error() != "release: "+text {
			t.Errorf("%v; want an error that reads as %q and is ErrUncertain", err, text)
		}
	}
}
