package sqlite

import (
	"testing"
	"time"
)

// TestLeftoverTransaction: the end of a transaction has failed, so the connection still has it open. The next use of
// the connection ends it. Otherwise a grant would not be on record, and an answer would be old.
func TestLeftoverTransaction(t *testing.T) {
	path := memoryPath(t)
	a, err := Open(path, nil)
	must(t, err)
	defer func() { must(t, a.Close()) }()
	b, err := Open(path, nil)
	must(t, err)
	defer func() { must(t, b.Close()) }()
	s, other := openTestSession(t, a, time.Hour), openTestSession(t, b, time.Hour)
	for range 2 { // the second grant takes one statement
		must(t, s.Release(t.Context(), granted(t, s, exclusive("x")), 0))
	}
	must(t, a.st.w.alone(t.Context(), func() error { return a.st.w.start(qBegin) }))
	h := granted(t, s, exclusive("x"))
	if rec, err := b.Inspect(t.Context(), "x"); err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != h.Token {
		t.Errorf("granted with token %d; on record is %+v, %v", h.Token, rec.Holders, err)
	}

	must(t, a.st.r.alone(t.Context(), func() error {
		if err := a.st.r.start(qRead); err != nil {
			return err
		}
		return a.st.present() // the transaction begins with the first read
	}))
	h = granted(t, other, exclusive("y"))
	signal(a.st.upkeep.checkpoint) // which fails in a transaction, and must not keep readers waiting
	if rec, err := a.Inspect(t.Context(), "y"); err != nil || len(rec.Holders) != 1 || rec.Holders[0].Token != h.Token {
		t.Errorf("granted with token %d; seen is %+v, %v", h.Token, rec.Holders, err)
	}
}

// TestBeginFailsOnce: the beginning of a transaction fails once. Nothing was done, so the call tries again.
func TestBeginFailsOnce(t *testing.T) {
	b, err := Open(memoryPath(t), &Config{Driver: "sqlite-aborting"})
	must(t, err)
	defer func() { must(t, b.Close()) }()
	s := openTestSession(t, b, time.Hour)
	granted(t, s, exclusive("x"))
	for _, after := range []bool{false, true} {
		abort.arm(1, after, codeIOErr)
		err := s.Cancel(t.Context(), "x", "nobody")
		abort.left.Store(-1)
		if err != nil || !abort.hit.Load() {
			t.Errorf("Cancel: %v; a statement failed: %v", err, abort.hit.Load())
		}
	}
}
