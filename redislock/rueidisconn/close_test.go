package rueidisconn

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// TestCloseBesideSubscribe: Close waits for each subscription that has begun, and ends it. None begins after it.
func TestCloseBesideSubscribe(t *testing.T) {
	made, err := Dial(testenv.Redis(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	client := made.(*conn).client
	for range 500 {
		c := New(client)
		subscribed := make(chan error, 1)
		go func() {
			_, err := c.Subscribe(t.Context(), "x", func(string) {}, func() {})
			subscribed <- err
		}()
		time.Sleep(rand.N(200 * time.Microsecond))
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-subscribed; err != nil && !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Subscribe: %v; want ErrClosed", err)
		}
	}
}
