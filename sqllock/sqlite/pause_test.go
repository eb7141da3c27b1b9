package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestPause: no request begins while the store is paused, and one that is under way ends before.
func TestPause(t *testing.T) {
	b, err := Open(filepath.Join(t.TempDir(), "locks.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	brief := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	look := func(ctx context.Context) error { _, err := b.Inspect(ctx, "a"); return err }
	resume, err := b.Pause(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := look(brief()); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a request to the paused store: %v", err)
	}
	if _, err := b.Pause(brief()); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a second pause: %v", err)
	}
	resume()
	resume() // once more does no harm
	if err := look(t.Context()); err != nil {
		t.Errorf("after the pause: %v", err)
	}

	under, over := make(chan struct{}), make(chan struct{})
	go func() {
		_ = b.st.w.with(context.Background(), func() error { close(under); <-over; return nil })
	}()
	<-under
	if _, err := b.Pause(brief()); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a pause during a request: %v", err)
	}
	close(over)
	if resume, err = b.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	resume()
}
