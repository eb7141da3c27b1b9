package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// nowhere has no server and counts the attempts to use one.
type nowhere struct {
	Dialect
	asked *atomic.Int64
}

var errNowhere = errors.New("no server")

func (nowhere) Name() string                                   { return "nowhere" }
func (nowhere) Text(s string) string                           { return s }
func (nowhere) Inline(text string, args []any) (string, []any) { return text, args }
func (nowhere) Transactions() Transactions                     { return Transactions{} }
func (nowhere) Advise(error, bool) string                      { return "" }
func (nowhere) Fault(error) Fault                              { return NotDone }
func (nowhere) Prepare(string, []any) string                   { return "" }
func (nowhere) Bounded(text string, _ bool) string             { return text }
func (nowhere) Driver() sqldriver.Driver                       { return nil }
func (n nowhere) Connect(context.Context) (sqldriver.Conn, error) {
	n.asked.Add(1)
	return nil, errNowhere
}

// Where waiters cannot be woken, new waiters do not delay the look for the earlier ones. A look
// follows soon after the first wait begins.
func TestPollerIsNotPutOff(t *testing.T) {
	for _, every := range []time.Duration{0, time.Millisecond, 4 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			n := nowhere{asked: &atomic.Int64{}}
			db := sql.OpenDB(n)
			b := New(db, n, nil)
			p := b.poll()
			time.Sleep(time.Second)
			if n.asked.Load() != 0 {
				t.Error("it looks though nothing waits")
			}
			b.waiters.Begin("a", "x", waitAlone)
			p.Wait()
			for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(max(every, time.Millisecond)) {
				if every > 0 {
					p.Wait()
				}
				if n.asked.Load() == 0 && time.Until(end) < 190*time.Millisecond {
					t.Errorf("no look within %v, with new waiters every %v", 2*pollFirst, every)
				}
			}
			// Without new waiters it looks after 5 ms, then after half as long again each time, up
			// to 50 ms.
			if looks := n.asked.Load(); looks < 4 || every > 0 && looks < 15 {
				t.Errorf("%d looks in 200 ms, with new waiters every %v", looks, every)
			}
			b.waiters.Cancel("a")
			time.Sleep(time.Second)
			before := n.asked.Load()
			b.waiters.Begin("b", "x", waitAlone)
			p.Wait()
			time.Sleep(2 * pollFirst)
			if n.asked.Load() == before {
				t.Error("no look soon after a new wait began")
			}
			_, _, _ = p.Close(), b.Close(), db.Close()
		})
	}
}
