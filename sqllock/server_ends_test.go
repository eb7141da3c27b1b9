package sqllock

import (
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A grant whose release has failed is nobody else's to give back, until its lease has ended.
func TestFailedReleaseIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nowhere{asked: &atomic.Int64{}}
		db := sql.OpenDB(n)
		b := New(db, n, nil)
		s := &serverSession{b: b, id: b.id + ".s", ttl: 3 * time.Second, live: map[string]request{}}
		b.open[s] = true
		if _, err := s.register("a", request{name: "x", group: true}); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a repetition changes nothing
			err := s.Release(t.Context(), driver.Hold{Name: "x", ID: "a", Token: 1}, 0)
			if !errors.Is(err, driver.ErrUnavailable) || !b.wanted("a") {
				t.Errorf("Release without a server: %v; wanted: %v", err, b.wanted("a"))
			}
			time.Sleep(s.ttl / 3)
		}
		time.Sleep(s.ttl)
		if b.wanted("a") {
			t.Error("it is wanted after the end of its lease")
		}
		b.stop()
		_ = db.Close()
	})
}
