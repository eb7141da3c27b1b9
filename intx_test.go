package holdfast_test

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// txStore answers each request in a transaction with a token and an error.
type txStore struct {
	driver.Backend
	token uint64
	err   error
}

func (s txStore) AcquireInTx(_ context.Context, tx any, r *driver.Request, _ time.Duration) (driver.Reply, error) {
	if tx == nil || r.Wait || r.Check() != nil {
		return driver.Reply{}, errors.New("a request that cannot be")
	}
	return driver.Reply{Token: s.token}, s.err
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
	c := client(t, txStore{Backend: memlock.New()}, nil)
	refuse("no name", holdfast.ErrInvalid)(c.InTx(t.Context(), 1, ""))
	refuse("an option", holdfast.ErrInvalid)(c.InTx(t.Context(), 1, "x", holdfast.MinHold(-1)))
	refuse("not granted", holdfast.ErrHeld)(c.InTx(t.Context(), 1, "x"))
	busy := client(t, txStore{Backend: memlock.New(), err: driver.ErrRetry}, nil)
	refuse("retry", holdfast.ErrRetry)(busy.InTx(t.Context(), 1, "x"))
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	refuse("a closed client", holdfast.ErrClosed)(c.InTx(t.Context(), 1, "x"))
}

// The ticket of a grant in a transaction names the grant to Resume. The store has none, as before the
// commit.
func TestInTxTicket(t *testing.T) {
	c := client(t, txStore{Backend: memlock.New(), token: 7}, nil)
	ticket, err := c.InTx(t.Context(), 1, "x")
	if err != nil {
		t.Fatal(err)
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(ticket, "holdfast2."))
	if err != nil || !strings.Contains(string(text), `"name":"x"`) || !strings.Contains(string(text), `"token":"7"`) {
		t.Errorf("the ticket is %s, %v; want that of token 7 of x", text, err)
	}
	refused(t, holdfast.ErrGone)(c.Resume(t.Context(), ticket))
}
