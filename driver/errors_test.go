package driver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

// NotCallers hides the end of a context, and nothing else.
func TestNotCallers(t *testing.T) {
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		inner := fmt.Errorf("%w: no answer: %w", driver.ErrUncertain, ended)
		err := fmt.Errorf("release: %w", driver.NotCallers(inner))
		if errors.Is(err, ended) {
			t.Errorf("%v is the end of a context", err)
		}
		if !errors.Is(err, driver.ErrUncertain) || err.Error() != "release: "+inner.Error() {
			t.Errorf("%v; want an error that reads as %v and is ErrUncertain", err, inner)
		}
	}
}
