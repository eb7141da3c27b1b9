package holdfast

import (
	"testing"
	"testing/synctest"
	"time"
)

// A lease that Extend gave an end is renewed only until that. The next call has a whole lease all the same.
func TestStickyAfterExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStickyIdle(t)
		l, err := s.mutex().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := l.Extend(2 * s.c.TTL()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*s.c.TTL() - 50*time.Millisecond)
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
		l, err = s.mutex().Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if left := l.Left(); left < s.c.TTL()/2 {
			t.Errorf("%v left", left)
		}
		time.Sleep(s.c.TTL())
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	})
}
