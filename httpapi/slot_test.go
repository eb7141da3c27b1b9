package httpapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// A request frees its place among the waits before its answer: a program may send its next request
// at once, and no place may be missing then. The test takes the place that the request has to free,
// so the answer must stay away until the test has put it back.
func TestPlaceIsFreeBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := holdfast.New(t.Context(), memlock.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := New(c, &Config{MaxWaits: 1})
		ss, _, fail := s.add("test", time.Now())
		if fail != nil {
			t.Fatal(fail.Message)
		}
		held, err := c.Mutex("x").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, a, fail := ss.join(&acquireIn{Request: 1, Name: "x", Mode: modeExclusive})
		if fail != nil {
			t.Fatal(fail.Message)
		}
		<-s.waits
		if err := held.Release(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-a.done:
			t.Error("the request was answered, and still has its place")
			s.waits <- struct{}{}
		default:
			s.waits <- struct{}{}
			<-a.done
		}
		ss.end(false)
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
