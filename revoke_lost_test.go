package holdfast_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// lostAnswers is a store that keeps an entry of a history whose answer is lost, and then cannot be reached.
type lostAnswers struct {
	driver.Backend
	calls int
}

func (s *lostAnswers) AddHistory(ctx context.Context, name, text string, keep int) error {
	if s.calls++; s.calls > 1 {
		return driver.ErrUnavailable
	}
	if err := s.Backend.AddHistory(ctx, name, text, keep); err != nil {
		return err
	}
	return driver.ErrUncertain
}

// A request to release whose answer was lost may have reached the holder, whatever a repeat is told.
func TestRevokeAnswerLost(t *testing.T) {
	store := &lostAnswers{Backend: memlock.New()}
	c, err := holdfast.New(t.Context(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	l, err := c.Mutex("a").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Revoke(t.Context(), "a", l.Token(), "now"); !errors.Is(err, holdfast.ErrUncertain) || store.calls < 2 {
		t.Errorf("%v after %d calls; want ErrUncertain", err, store.calls)
	}
	store.calls = 0
	if err := c.Break(t.Context(), "a", l.Token(), "now"); !errors.Is(err, holdfast.ErrUnrecorded) || store.calls < 2 {
		t.Errorf("%v after %d calls; want ErrUnrecorded", err, store.calls)
	}
}
