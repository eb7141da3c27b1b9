package open

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// An opened store takes locks in transactions if its kind of store does. The two refuse a
// transaction that is none in different words.
func TestInTx(t *testing.T) {
	p := testenv.Postgres(t)
	for url, want := range map[string]string{
		"memory:": "this store (memory) has no transactions of its callers",
		"postgres://postgres@" + p.Addr + "/postgres?sslmode=disable": "a string is none of a client library",
	} {
		s, err := Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		var b driver.TxBackend = s
		_, err = b.AcquireInTx(t.Context(), "tx", &driver.Request{ID: "x", Name: "x", Mode: driver.Exclusive, N: 1},
			time.Second)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want ErrInvalid, with %q", url, err, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
