package rueidisconn_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// A client that is nil is refused: a program uses a variable that it has not set yet.
func TestNilClient(t *testing.T) {
	t.Parallel()
	b := redislock.New(rueidisconn.New(nil), nil)
	is := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "client: it is nil") {
			t.Errorf("%s: %v; want ErrInvalid", what, err)
		}
	}
	_, err := b.Open(t.Context(), driver.SessionConfig{ID: "a", TTL: time.Minute})
	is("Open", err)
	_, err = b.List(t.Context(), "", "", 1)
	is("List", err)
	_, err = b.History(t.Context(), "x")
	is("History", err)
	_, err = b.Diagnose(t.Context(), time.Minute)
	is("Diagnose", err)
	if err := b.Watch(t.Context(), "", func(string) {}); err == nil {
		t.Error("Watch returned no error")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
