package modeltest

import (
	"fmt"
	"reflect"

	"pgregory.net/rapid"

	"github.com/holdfast-lock/holdfast/driver"
)

// check compares every name with the rule, and then the pushes.
func (w *world) check(*rapid.T) {
	for _, n := range w.names {
		got, err := w.store.Backend.Inspect(w.ctx, n.name)
		if err != nil {
			w.t.Fatalf("Inspect(%s): %v", n.name, err)
		}
		w.pushed(n, n.Advance(w.now))
		if err := w.compare(n, got); err != nil {
			w.t.Fatalf("%s is\n%+v\n%v; want\n%+v", n.name, got, err, n.Record(w.now, n.name))
		}
		if err := n.consistent(got); err != nil {
			w.t.Fatalf("%s is\n%+v\n%v", n.name, got, err)
		}
	}
	w.checkPushes()
	for _, c := range w.clients {
		select {
		case <-c.Lost():
			w.t.Fatalf("session %s is lost", c.id)
		default:
		}
	}
}

// compare compares a record with the rule's.
func (w *world) compare(n *name, got driver.Record) error {
	want := n.Record(w.now, n.name)
	if len(got.Holders) != len(want.Holders) {
		return fmt.Errorf("%d holders", len(got.Holders))
	}
	for i := range want.Holders {
		if err := n.match(want.Holders[i].Token, got.Holders[i].Token); err != nil {
			return err
		}
		want.Holders[i].Token = got.Holders[i].Token
	}
	switch {
	case got.Token == 0 && len(got.Holders) == 0: // the store has forgotten it
	case want.Token != 0 && want.Token == n.uncertainLast && got.Token > n.tokens[want.Token]:
		n.lastTokens[want.Token] = max(n.lastTokens[want.Token], got.Token)
	default:
		if err := n.match(want.Token, got.Token); err != nil {
			return fmt.Errorf("last %w", err)
		}
	}
	if want.Token = got.Token; !reflect.DeepEqual(got, want) {
		return fmt.Errorf("not as in the rule")
	}
	return nil
}

// consistent checks the properties of a record that hold whatever the rule says.
func (n *name) consistent(r driver.Record) error {
	used, last := 0, uint64(0)
	exclusive := false
	seen, alive := map[string]bool{}, map[uint64]bool{}
	for _, h := range r.Holders {
		used, exclusive = used+h.N, exclusive || h.Mode == driver.Exclusive
		switch {
		case h.Token <= last || h.Token > r.Token:
			return fmt.Errorf("token %d after %d, with %d as the last of all", h.Token, last, r.Token)
		case h.Left <= 0:
			return fmt.Errorf("an expired lease")
		case !h.Kept && seen[h.ID]:
			return fmt.Errorf("%s holds it twice", h.ID)
		case !h.Kept && n.ended[h.Token]:
			return fmt.Errorf("token %d is held again", h.Token)
		}
		last = h.Token
		if !h.Kept {
			seen[h.ID], alive[h.Token] = true, true
		}
	}
	for t := range n.current {
		n.ended[t] = n.ended[t] || !alive[t]
	}
	n.current = alive
	if n.peak = max(n.peak, r.Limit); r.Kind != driver.Semaphore {
		n.peak = 0
	}
	switch {
	case exclusive && len(r.Holders) > 1:
		return fmt.Errorf("others hold it together with an exclusive holder")
	case used > n.peak && r.Kind == driver.Semaphore:
		return fmt.Errorf("%d permits of %d are granted", used, n.peak)
	case len(r.Holders)+len(r.Waiters) > 0 && r.Kind != driver.Lock && r.Kind != driver.Semaphore,
		len(r.Holders)+len(r.Waiters) == 0 && r.Kind != driver.Unused && r.Kind != driver.Latch && !r.Set:
		return fmt.Errorf("of the wrong kind")
	}
	for i, p := range r.Waiters {
		switch {
		case seen[p.ID]:
			return fmt.Errorf("%s holds it and waits for it", p.ID)
		case p.Left <= 0:
			return fmt.Errorf("%s is in the queue and has expired", p.ID)
		case i == 0 && (p.Mode == driver.Exclusive && len(r.Holders) == 0 || p.Mode == driver.Shared && !exclusive ||
			p.Mode == driver.Permits && used+p.N <= r.Limit):
			return fmt.Errorf("%s waits, though it fits", p.ID)
		}
		seen[p.ID] = true
	}
	return nil
}
