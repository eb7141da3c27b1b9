package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A pause of hundreds of years is a pause, too.
func TestPollForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		defer release(t, lock(t, client(t, store, nil), "x"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := client(t, store, nil)
		refused(t, context.DeadlineExceeded)(c.Mutex("x", holdfast.Poll(1<<63-1, 2)).Lock(ctx))
		refused(t, context.DeadlineExceeded)(c.Mutex("x", holdfast.Poll(1<<61, math.MaxInt)).Lock(ctx))
	})
}

// An option that is nil is reported, as one that is not allowed.
func TestNilOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		var none holdfast.Option
		refused(t, holdfast.ErrInvalid)(c.Mutex("x", none, holdfast.Fair()).Lock(t.Context()))
		refused(t, holdfast.ErrInvalid)(c.RWMutex("x", none).RLock(t.Context()))
		refused(t, holdfast.ErrInvalid)(c.Election("x", none).Campaign(t.Context()))
		if _, err := c.OnlyOne(t.Context(), "x", time.Hour, nil, none); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("OnlyOne: %v", err)
		}
	})
}

// The error of a note or of labels that do not fit says which of them it is, and what is allowed.
func TestTooLongForTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), &holdfast.Config{Labels: map[string]string{"k": "v"}})
		long := strings.Repeat("n", 5000)
		_, err := c.Mutex("a", holdfast.Note(long)).TryLock(t.Context())
		var takes, most int
		if err == nil || !errors.Is(err, holdfast.ErrInvalid) {
			t.Fatalf("a note of 5000 bytes: %v; want ErrInvalid", err)
		}
		_, after, _ := strings.Cut(err.Error(), ": invalid note: ")
		if _, serr := fmt.Sscanf(after, "it takes %d bytes with its escapes; allowed are %d ", &takes, &most); serr != nil ||
			takes != len(long) || most < 3000 {
			t.Errorf("a note of 5000 bytes: %v", err)
		}
		for n, fits := range map[int]bool{most: true, most + 1: false} {
			l, err := c.Mutex("a", holdfast.Note(long[:n])).TryLock(t.Context())
			if (err == nil) != fits {
				t.Errorf("a note of %d bytes, allowed are %d: %v", n, most, err)
			}
			_ = l.Release()
		}
		_, err = c.Mutex("a", holdfast.Note("n"), holdfast.Label("l", long)).TryLock(t.Context())
		if err == nil || !strings.Contains(err.Error(), ": invalid labels: they take 5") {
			t.Errorf("a label of 5000 bytes: %v", err)
		}
	})
}

// A ticket that cannot be read names no lock, so its error does not, either.
func TestErrorWithoutAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, memlock.New(), nil)
		_, err := c.Adopt(t.Context(), "xyz")
		if err == nil || !strings.HasPrefix(err.Error(), "holdfast: adopt: invalid ticket: ") {
			t.Errorf("Adopt: %v", err)
		}
	})
}
