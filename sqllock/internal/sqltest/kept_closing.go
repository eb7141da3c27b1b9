package sqltest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// CloseWithALockedRow closes a session while the row of one of its leases is locked. All others are
// free afterwards.
func (x *Locked) CloseWithALockedRow(t *testing.T) {
	b := sqllock.New(x.Open(), x.Dialect(), nil)
	t.Cleanup(func() { _ = b.Close() })
	s, o := open(t, b, "s"), open(t, b, "o")
	holds := Take(t, s, "closing", 20, driver.Exclusive)
	end := x.Block(holds[5].Name)
	defer end()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // enough on a busy machine
	defer cancel()
	began := time.Now()
	err := s.Close(ctx)
	t.Logf("Close took %v: %v", time.Since(began), err)
	taken := 0
	for i, h := range holds {
		if i == 5 {
			continue
		}
		rep, err := o.Acquire(t.Context(), &driver.Request{ID: fmt.Sprint("next-", i), Name: h.Name, Mode: driver.Exclusive,
			N: 1})
		if err != nil {
			t.Fatal(err)
		}
		if rep.Token == 0 {
			taken++
		}
	}
	if taken > 0 {
		t.Errorf("a closed session still holds %d of 19 names without a locked row", taken)
	}
}
