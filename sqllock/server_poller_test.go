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

// nowhere counts how often somebody wants to ask something, and has nobody to ask.
type nowhere struct {
	Dialect
	asked *atomic.Int64
}

var errNowhere = errors.New("nobody to ask")

func (nowhere) Text(s string) string                           { return s }
func (nowhere) Inline(text string, args []any) (string, []any) { return text, args }
func (nowhere) Transactions() Transactions                     { return Transactions{} }
func (nowhere) Advise(error) string                            { return "" }
func (nowhere) Fault(error) Fault                              { return NotDone }
func (nowhere) Prepare(string, []any) string                   { return "" }
func (nowhere) Bounded(text string, _ bool) string             { return text }
func (nowhere) Driver() sqldriver.Driver                       { return nil }
func (n nowhere) Connect(context.Context) (sqldriver.Conn, error) {
	n.asked.Add(1)
	return nil, errNowhere
}

// Where nobody can be woken, those who begin to wait all the time do not put off the look at what
// has become of those who wait already; and a look comes soon after the first begins to wait.
func TestPollerIsNotPutOff(t *testing.T) {
	for _, every := range []time.Duration{0, time.Millisecond, 4 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			n := nowhere{asked: &atomic.Int64{}}
			db := sql.OpenDB(n)
			b := New(db, n, nil)
			p := b.poll()
			time.Sleep(time.Second)
			if n.asked.Load() != 0 {
				t.Error("it looks though nobody waits")
			}
			b.bells.begin("a", "x")
			p.Wait()
			for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(max(every, time.Millisecond)) {
				if every > 0 {
					p.Wait()
				}
				if n.asked.Load() == 0 && time.Until(end) < 190*time.Millisecond {
					t.Errorf("no look within %v, with news of waiters every %v", 2*pollFirst, every)
				}
			}
			// Without interruption it looks after 5 ms and a half more each time, up to 50 ms.
			if looks := n.asked.Load(); looks < 4 || every > 0 && looks < 15 {
				t.Errorf("%d looks in 200 ms, with news of waiters every %v", looks, every)
			}
			b.bells.cancel("a")
			time.Sleep(time.Second)
			before := n.asked.Load()
			b.bells.begin("b", "x")
			p.Wait()
			time.Sleep(2 * pollFirst)
			if n.asked.Load() == before {
				t.Error("no look soon after somebody began to wait again")
			}
			_, _, _ = p.Close(), b.Close(), db.Close()
		})
	}
}

// A token of an earlier life of a request is no news, so the request is looked after further on.
func TestOldTokenIsNoGrant(t *testing.T) {
	b := newBells()
	w := b.begin("a", "x")
	b.ring("a", 3) // before the answer says that it is an old one
	b.park(w, 5)
	b.ring("a", 4)
	if len(b.pending()["x"].Alone) != 1 {
		t.Error("told of old tokens only, it is taken for one that was granted")
	}
	b.ring("a", 6)
	if len(b.pending()) != 0 {
		t.Error("told of its grant, it is looked after still")
	}
}
