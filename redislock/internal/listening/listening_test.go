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
		looks, lost, there := 0, 0, int64(1)
		var waited atomic.Bool
		waited.Store(true)
		w := Watch{
			Doubt: &doubt, Confirmed: confirmed, Settled: func() {}, Lost: func() { lost++ },
			Waited: waited.Load,
			Count:  func(context.Context, string, string) (int64, error) { looks++; return there, nil },
		}
		go w.Look(t.Context())
		seen := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			if looks != want {
				t.Errorf("%s: %d looks; want %d", what, looks, want)
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
		there = 0
		doubt.Raise()
		time.Sleep(time.Second)
		seen("in doubt", 8)
		if lost != 1 {
			t.Errorf("lost %d times; want 1", lost)
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
				Lost: func() { t.Error("lost") },
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
