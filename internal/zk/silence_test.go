package zk

import (
	"testing"
	"time"
)

// A server is silent for as long as this program looked on. A standstill of any length counts as one
// interval, however often it happens.
func TestSilence(t *testing.T) {
	const interval = time.Second
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	q := silence{seen: start}
	for _, c := range []struct{ since, now, want time.Duration }{
		{0, time.Second / 2, time.Second / 2},
		{0, 3 * time.Second / 2, 3 * time.Second / 2},
		{0, 2 * time.Second, 2 * time.Second},
		{0, time.Minute, 3 * time.Second}, // it stood still
		{0, 2 * time.Minute, 4 * time.Second},
		{119 * time.Second, 2*time.Minute + time.Second/2, time.Second / 2}, // the server answered
		{119 * time.Second, 2*time.Minute + 3*time.Second/2, 3 * time.Second / 2},
		{3 * time.Minute, 3*time.Minute + time.Second/4, time.Second / 4}, // a request was sent after a pause
		{3 * time.Minute, 3*time.Minute + time.Second/2, time.Second / 2},
	} {
		now := at(c.now)
		if got := q.after(at(c.since), now, interval); got != c.want {
			t.Errorf("at %v, without a sign since %v: silent for %v; want %v", c.now, c.since, got, c.want)
		}
		q.seen = now
	}
}
