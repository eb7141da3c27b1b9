package httpapi_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/httpapi"
	"github.com/holdfast-lock/holdfast/memlock"
)

type partly struct{ driver.Backend }

func (partly) rec() driver.Record {
	part := []driver.Holder{{ID: "a", N: 1, Left: time.Second, Partial: true}}
	return driver.Record{Name: "x", Kind: driver.Lock, Partial: part, FreeIn: time.Second}
}

func (p partly) Inspect(context.Context, string) (driver.Record, error) { return p.rec(), nil }

func (p partly) List(context.Context, string, string, int) ([]driver.Record, error) {
	return []driver.Record{p.rec()}, nil
}

// The document describes what a quorum says about grants at too few servers.
func TestPartialIsDescribed(t *testing.T) {
	c, err := holdfast.New(t.Context(), partly{memlock.New()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	s, d := httpapi.New(c, nil), readDocument(t)
	for path := range d.Paths {
		if _, ok := d.Paths[path]["get"]; !ok {
			continue
		}
		r := httptest.NewRequest("GET", path+"?name=x", nil)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if path == "/v1/openapi.json" || w.Code != 200 {
			continue
		}
		d.checkAnswer(t, r, w.Code, w.Body.Bytes())
	}
}
