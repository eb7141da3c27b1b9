package cli

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast"
)

// A refusal ends what would be shown if the store has never answered. A later one, and an outage,
// are messages.
func TestRefusedForGood(t *testing.T) {
	refused := fmt.Errorf("%w: no permission", holdfast.ErrRefused)
	silent := fmt.Errorf("%w: no answer", holdfast.ErrUncertain)
	for _, c := range []struct {
		errs []error // nil: an item
		ends bool
	}{{[]error{refused, nil}, true}, {[]error{silent, refused, nil}, true}, {[]error{nil, refused, nil}, false}} {
		shown := 0
		var said bytes.Buffer
		err := showAll(&app{stderr: &said}, itemsAnd(c.errs), func(int) error { shown++; return nil })
		if errors.Is(err, holdfast.ErrRefused) != c.ends || shown > 0 == c.ends {
			t.Errorf("%v: ended with %v after %d items", c.errs, err, shown)
		}
		if said.Len() > 0 && !strings.HasSuffix(said.String(), "; still watching\n") { // else it looks like the end
			t.Errorf("%v: said %q", c.errs, said.String())
		}
		if reported := strings.Contains(said.String(), "no permission"); reported == c.ends {
			t.Errorf("%v: said %q", c.errs, said.String())
		}
	}
}

func itemsAnd(errs []error) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i, err := range errs {
			if !yield(i, err) {
				return
			}
		}
	}
}
