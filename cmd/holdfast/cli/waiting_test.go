package cli

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A waiter that has got the lock, and has not learned of it yet, does not wait for itself.
func TestLookAfterTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		waits := make(chan holdfast.Waiting, 10)
		client := func(cfg *holdfast.Config) *holdfast.Client {
			c, err := holdfast.New(t.Context(), store, cfg)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		first := client(nil)
		second := client(&holdfast.Config{Observer: &holdfast.Observer{
			Waiting: func(w holdfast.Waiting) { waits <- w },
		}})
		l, err := first.Mutex("a").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan *holdfast.Lease, 1)
		go func() {
			l, err := second.Mutex("a").Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			granted <- l
		}()
		now, note := <-waits, remark{"the note", "its key"}
		if err := look(t.Context(), first, &now, &note); err != nil || now.Holder == nil ||
			now.Holder.Token != l.Token() || note != (remark{}) {
			t.Errorf("while it waits: %+v, %q, %v; want token %d", now, note.line, err, l.Token())
		}
		before := now
		note = remark{"the note", "its key"}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		l = <-granted
		if err := look(t.Context(), first, &now, &note); err != nil || now != before || note.line != "the note" {
			t.Errorf("after the grant: %+v, holder %+v, %q, %v; want %+v", now, now.Holder, note.line, err, before)
		}
		if err := errors.Join(l.Release(), first.Close(t.Context()), second.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
