package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// WaitersLearnWhoHolds gives up waiting, and learns the holder.
func WaitersLearnWhoHolds(t *testing.T, open func() *sql.DB, dialect func() sqllock.Dialect) {
	client := func() *holdfast.Client {
		b := sqllock.New(open(), dialect(), nil)
		t.Cleanup(func() { _ = b.Close() })
		c, err := holdfast.New(t.Context(), b, &holdfast.Config{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	a, b := client(), client()
	l, err := a.Mutex("who", holdfast.Note("the first of all")).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Mutex("who", holdfast.WaitAtMost(3*time.Second)).Lock(t.Context())
	var e *holdfast.Error
	if !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &e) || e.Holder == nil || e.Holder.Token != l.Token() ||
		e.Holder.Note != "the first of all" {
		t.Errorf("%v; want ErrHeld, with the holder", err)
	}
}

// RefusedInWords calls a server that refuses writes: the error is ErrRefused, with a reason.
func RefusedInWords(t *testing.T, db *sql.DB, dialect sqllock.Dialect, refuse func(), words string) {
	b := sqllock.New(db, dialect, nil)
	defer func() { _ = b.Close() }()
	s := open(t, b, "refused")
	defer func() { _ = s.Close(context.Background()) }()
	refuse()
	_, err := s.Acquire(t.Context(), &driver.Request{ID: "refused-1", Name: "refused", Mode: driver.Exclusive, N: 1,
		Wait: true})
	if !errors.Is(err, driver.ErrRefused) || !strings.Contains(err.Error(), words) {
		t.Errorf("%v; want ErrRefused, with %q", err, words)
	}
}
