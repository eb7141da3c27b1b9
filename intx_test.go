package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// txStore grants in transactions: every request that asks for it.
type txStore struct {
	driver.Backend
	err error
}

func (s txStore) AcquireInTx(_ context.Context, tx any, r *driver.Request, _ time.Duration) (driver.Reply, error) {
	if tx == nil || r.Wait || r.Check() != nil {
		return driver.Reply{}, errors.New("a request that cannot be")
	}
	return driver.Reply{}, s.err
}

// InTx refuses before it asks the store, and passes the store's answer on.
func TestInTxRefused(t *testing.T) {
	memory := client(t, memlock.New(), nil)
	refuse := func(what string, want error) func(string, error) {
		return func(ticket string, err error) {
			t.Helper()
			if !errors.Is(err, want) || ticket != "" {
				t.Errorf("%s: %q, %v; want %v", what, ticket, err, want)
			}
		}
	}
	refuse("a store without transactions", holdfast.ErrInvalid)(memory.InTx(t.Context(), 1, "x"))
	refuse("no client", holdfast.ErrInvalid)((*holdfast.Client)(nil).InTx(t.Context(), 1, "x"))
	c := client(t, txStore{memlock.New(), nil}, nil)
	refuse("no name", holdfast.ErrInvalid)(c.InTx(t.Context(), 1, ""))
	refuse("an option", holdfast.ErrInvalid)(c.InTx(t.Context(), 1, "x", holdfast.MinHold(-1)))
	refuse("not granted", holdfast.ErrHeld)(c.InTx(t.Context(), 1, "x"))
	refuse("retry", holdfast.ErrRetry)(client(t, txStore{memlock.New(), driver.ErrRetry}, nil).InTx(t.Context(), 1, "x"))
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	refuse("a closed client", holdfast.ErrClosed)(c.InTx(t.Context(), 1, "x"))
}
