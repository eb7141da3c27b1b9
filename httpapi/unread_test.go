package httpapi_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/httpapi"
	"github.com/holdfast-lock/holdfast/memlock"
)

// unread is a store that answers no question about its records.
type unread struct{ driver.Backend }

func (unread) Inspect(context.Context, string) (driver.Record, error) {
	return driver.Record{}, driver.ErrUncertain
}

func (unread) List(context.Context, string, string, int) ([]driver.Record, error) {
	return nil, driver.ErrUncertain
}

// A call that only reads leaves no outcome open.
func TestUnread(t *testing.T) {
	c, err := holdfast.New(t.Context(), unread{memlock.New()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	for _, path := range []string{"/v1/lock?name=a", "/v1/locks"} {
		w := httptest.NewRecorder()
		httpapi.New(c, nil).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if text := w.Body.String(); w.Code != 503 || !strings.Contains(text, "store_unavailable") ||
			strings.Contains(text, "undone") {
			t.Errorf("%s: %d %s", path, w.Code, text)
		}
	}
}
