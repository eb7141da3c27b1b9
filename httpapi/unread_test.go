package httpapi_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// An outage does not flood the log, and the log says what it left out.
func TestLogInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := holdfast.New(t.Context(), unread{memlock.New()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		var lines bytes.Buffer
		api := httpapi.New(c, &httpapi.Config{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		ask := func(n int, path string) {
			for range n {
				api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
			}
		}
		// A call repeats its read for a while, so the requests come at the same moment.
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { ask(1, "/v1/lock?name=a") })
		}
		all.Wait()
		ask(1, "/v1/locks") // another text
		if got := lines.String(); strings.Count(got, "httpapi: inspect") != 20 || strings.Count(got, "httpapi: list") != 1 {
			t.Errorf("%d lines: %.500s", strings.Count(got, "\n"), got)
		}
		lines.Reset()
		time.Sleep(time.Minute)
		ask(1, "/v1/lock?name=a")
		if got := lines.String(); !strings.Contains(got, "left_out=80") {
			t.Error(got)
		}
	})
}
