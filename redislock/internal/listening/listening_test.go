package listening

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLook counts the checks of a subscription: one when it is confirmed, and then one every two
// seconds, but only while the client is used.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var doubt Doubt
		confirmed := make(chan struct{}, 1)
		var looks, lost, there atomic.Int64
		there.Store(1)
		var waited atomic.Bool
		waited.Store(true)
		w := Watch{
			Doubt: &doubt, Confirmed: confirmed, Settled: func() {}, Lost: func() bool { return lost.Add(1) > 1 },
			Waited: waited.Load,
			Count: func(context.Context, string, string) (int64, error) {
				looks.Add(1)
				return there.Load(), nil
			},
		}
		go w.Look(t.Context())
		seen := func(what string, want int64) {
			t.Helper()
			synctest.Wait()
			if n := looks.Load(); n != want {
				t.Errorf("%s: %d looks; want %d", what, n, want)
			}
		}
		time.Sleep(time.Minute)
		seen("before it is confirmed", 0)
		confirmed <- struct{}{}
		seen("confirmed", 1)
		time.Sleep(time.Hour)
		seen("an unused client", 1)
		doubt.Used()
		time.Sleep(time.Hour)
		seen("used once", 2)
		for range 10 {
			doubt.Used()
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		seen("used for ten seconds", 7)
		waited.Store(false)
		doubt.Used()
		time.Sleep(time.Hour)
		seen("used, but nobody waits for messages", 7)
		there.Store(0)
		doubt.Raise()
		time.Sleep(time.Second)
		seen("in doubt", 8)
		time.Sleep(time.Hour)
		seen("the answer was about another subscription", 9)
		if n := lost.Load(); n != 2 {
			t.Errorf("lost %d times; want 2", n)
		}
	})
}

// TestLookWhileRefused: a server that may be no primary is asked for two seconds, one that lacks
// replicas once.
func TestLookWhileRefused(t *testing.T) {
	for reply, most := range map[string]int{"READONLY a replica": 1000,
		"NOREPLICAS Not enough good replicas to write.": 1} {
		synctest.Test(t, func(t *testing.T) {
			confirmed := make(chan struct{}, 1)
			looks, settled := 0, make(chan struct{}, 1)
			w := Watch{
				Doubt: new(Doubt), Confirmed: confirmed, Settled: func() { settled <- struct{}{} },
				Lost: func() bool { t.Error("lost"); return true },
				Count: func(context.Context, string, string) (int64, error) {
					looks++
					return 0, fmt.Errorf("%w: %s", driver.ErrUnavailable, reply)
				},
			}
			go w.Look(t.Context())
			confirmed <- struct{}{}
			<-settled
			if looks > most || most > 1 && looks < 10 {
				t.Errorf("%s: asked %d times; want at most %d", reply, looks, most)
			}
		})
	}
}
