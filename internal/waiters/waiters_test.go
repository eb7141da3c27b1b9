package waiters

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// model is what a request of one ID should do, by the sets of tokens that were pushed.
type model struct {
	name      string
	parked    bool
	cancelled bool
	after     uint64
	zero      bool            // 0 was pushed before Park
	pushed    map[uint64]bool // tokens, since Begin
	unread    []uint64        // at most one value
	hint      string
}

// given counts the tokens that can be of the request's grant.
func (m *model) given() (n int, token uint64) {
	for t := range m.pushed {
		if t > m.after {
			n, token = n+1, t
		}
	}
	return n, token
}

func (m *model) push(token uint64) {
	before, _ := m.given()
	if token != 0 {
		m.pushed[token] = true
	}
	now, _ := m.given()
	switch {
	case !m.parked:
		m.zero = m.zero || token == 0
	case token == 0 && now == 0:
		m.unread = []uint64{0}
	case before == 0 && now == 1:
		m.unread = []uint64{token}
	case before == 1 && now == 2:
		m.unread = []uint64{0}
	}
}

func (m *model) park(after uint64) {
	m.parked, m.after = true, after
	switch n, token := m.given(); {
	case n == 1:
		m.unread = []uint64{token}
	case n > 1 || m.zero:
		m.unread = []uint64{0}
	}
}

// use is a request, real and as in the model.
type use struct {
	w    *Waiter
	m    *model
	wake <-chan uint64
}

// FuzzTable compares a table with the model after each step.
func FuzzTable(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		steps := make([]byte, 80)
		for i := range steps {
			steps[i] = byte(r.Uint32())
		}
		f.Add(steps)
	}
	f.Fuzz(func(t *testing.T, steps []byte) {
		table, uses, live := NewTable(), []*use{}, map[string]*use{}
		stop := func(id string) {
			if u := live[id]; u != nil {
				u.m.cancelled, u.m.unread = true, nil
				delete(live, id)
			}
		}
		for len(steps) > 1 {
			step, value := steps[0], uint64(steps[1]%8)
			steps = steps[2:]
			id, name := string('a'+rune(step>>3&1)), string('x'+rune(step>>4&1))
			switch u := live[id]; step & 7 {
			case 0:
				stop(id)
				u = &use{table.Begin(id, name, uint8(value)), &model{name: name, pushed: map[uint64]bool{}}, nil}
				live[id], uses = u, append(uses, u)
			case 1: // also after a cancel, as an Acquire under way does
				if len(uses) > 0 {
					u = uses[int(value)%len(uses)]
				}
				if u != nil && u.wake == nil {
					u.wake = table.Park(u.w, value)
					if !u.m.cancelled {
						u.m.park(value)
					}
				}
			case 2, 3, 4:
				table.Notify(id, value)
				if u != nil {
					u.m.push(value)
				}
			case 5:
				reason := string('0' + rune(value&1))
				table.Ask(id, reason)
				if u != nil && u.m.hint != reason {
					u.m.hint = reason
					u.m.push(0)
				}
			case 6:
				if value > 3 || len(uses) == 0 {
					table.Cancel(id)
					stop(id)
				} else if u := uses[int(value)%len(uses)]; true {
					table.End(id, u.w)
					if live[id] == u {
						stop(id)
					}
				}
			case 7:
				if u != nil && len(u.m.unread) > 0 {
					<-u.wake
					u.m.unread = nil
				}
			}
			compare(t, table, uses, live)
		}
	})
}

func compare(t *testing.T, table *Table, uses []*use, live map[string]*use) {
	t.Helper()
	for i, u := range uses {
		var unread []uint64
		if len(u.w.slot) > 0 {
			unread = append(unread, <-u.w.slot)
			u.w.slot <- unread[0]
		}
		if !slices.Equal(unread, u.m.unread) || len(u.wake) != len(u.m.unread) {
			t.Fatalf("request %d: %d unread, the model has %d: %+v", i, unread, u.m.unread, u.m)
		}
		if table.Cancelled(u.w) != u.m.cancelled {
			t.Fatalf("request %d: cancelled is %v", i, !u.m.cancelled)
		}
	}
	var names, pending, wantNames, wantPending []string
	names = table.Names(9)
	table.Pending(func(id, name string, _ uint8) { pending = append(pending, id+name) })
	for id, u := range live {
		if u.m.parked && !slices.Contains(wantNames, u.m.name) {
			wantNames = append(wantNames, u.m.name)
		}
		if n, _ := u.m.given(); n == 0 || !u.m.parked {
			wantPending = append(wantPending, id+u.m.name)
		}
	}
	for _, s := range [][]string{names, pending, wantNames, wantPending} {
		slices.Sort(s)
	}
	if !slices.Equal(names, wantNames) || !slices.Equal(pending, wantPending) || table.Len() != len(live) {
		t.Fatalf("names %q, pending %q, %d in all; the model has %q, %q, %d", names, pending, table.Len(), wantNames,
			wantPending, len(live))
	}
}

func read(t *testing.T, wake <-chan uint64) uint64 {
	t.Helper()
	select {
	case v := <-wake:
		return v
	default:
		t.Fatal("the waiter is not woken")
		return 0
	}
}

// A request has one grant in one wait. If two tokens come, one may be a stranger's, so the waiter
// asks the store (R16). A stranger who repeats his cannot change that.
func TestDispute(t *testing.T) {
	for name, early := range map[string]int{"before the answer": 3, "one before the answer": 1, "after the answer": 0} {
		table := NewTable()
		w := table.Begin("a", "x", 0)
		pushes := []uint64{7, 9, 9, 7, 5}
		for _, token := range pushes[:early] {
			table.Notify("a", token)
		}
		wake := table.Park(w, 5)
		for _, token := range pushes[early:] {
			table.Notify("a", token)
		}
		if v := read(t, wake); v != 0 {
			t.Errorf("%s: woken with %d, one of two tokens; want 0: ask", name, v)
		}
		if table.Notify("a", 9); len(wake) > 0 {
			t.Errorf("%s: woken again", name)
		}
	}
}

// After Cancel no wake-up follows: neither one that nobody has read, nor one that was pushed before
// the answer.
func TestCancel(t *testing.T) {
	table := NewTable()
	wake := table.Park(table.Begin("a", "x", 0), 0)
	table.Notify("a", 7)
	table.Cancel("a")
	w := table.Begin("b", "x", 0)
	table.Notify("b", 7)
	table.Cancel("b")
	early := table.Park(w, 0)
	for _, id := range []string{"a", "b"} {
		table.Notify(id, 8)
	}
	if len(wake) > 0 || len(early) > 0 {
		t.Error("woken after Cancel")
	}
	if !table.Cancelled(w) || table.Len() > 0 || len(table.Names(9)) > 0 {
		t.Errorf("left: %d requests, names %q", table.Len(), table.Names(9))
	}
}

// The grant reaches the waiter whatever is pushed meanwhile, and nothing follows a cancel.
func TestTogether(t *testing.T) {
	table := NewTable()
	for range 300 {
		w := table.Begin("a", "x", 0)
		var all sync.WaitGroup
		for _, token := range []uint64{0, 4, 9} { // 4 is of an earlier use
			all.Go(func() { table.Notify("a", token) })
		}
		wake := table.Park(w, 5)
		for v := <-wake; v != 9; v = <-wake {
			if v != 0 {
				t.Fatalf("woken with %d", v)
			}
		}
		all.Wait()
		wake = table.Park(table.Begin("a", "x", 0), 5)
		for _, token := range []uint64{0, 9, 10} {
			all.Go(func() { table.Notify("a", token) })
		}
		table.Cancel("a")
		if len(wake) > 0 {
			t.Fatal("woken after Cancel")
		}
		if all.Wait(); len(wake) > 0 {
			t.Fatal("woken after Cancel")
		}
	}
}

// A token replaces what nobody has read, and 0 replaces nothing.
func TestSlot(t *testing.T) {
	s := NewSlot()
	for _, c := range []struct {
		put  []uint64
		want uint64
	}{{[]uint64{0}, 0}, {[]uint64{0, 0}, 0}, {[]uint64{0, 7}, 7}, {[]uint64{7, 0}, 7}, {[]uint64{7, 9}, 9}} {
		for _, v := range c.put {
			s.Put(v)
		}
		if v := read(t, s); v != c.want || len(s) > 0 {
			t.Errorf("%d were put; %d and %d more are read", c.put, v, len(s))
		}
	}
	s.Put(7)
	if s.Drain(); len(s) > 0 {
		t.Error("a value is left")
	}
	var none Slot
	none.Put(0)
	none.Put(1)
	none.Drain()
}
