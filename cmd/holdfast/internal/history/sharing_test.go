package history

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

// sharing makes a good history of readers of one client that share grants, beside other readers and writers.
// It returns the IDs of the readers of each shared grant.
func sharing(rng *rand.Rand) (events []Event, groups [][]string) {
	some := func(lo, hi int64) int64 { return lo + rng.Int64N(hi-lo+1) }
	now, token, id := int64(1000), uint64(0), 0
	add := func(client string, mode driver.Mode, call, answered, released int64) string {
		id++
		e := Event{Client: client, ID: fmt.Sprint(id), Name: "x"}
		put := func(t int64, kind Kind, f func(*Event)) {
			e := e
			if e.T, e.Kind = t, kind; f != nil {
				f(&e)
			}
			events = append(events, e)
		}
		put(call, Acquire, func(e *Event) { e.Mode, e.Wait, e.TTL = mode, true, madeTTL })
		put(answered, Granted, func(e *Event) { e.Token, e.From = token, call })
		put(released, Release, nil)
		put(released+1, Released, func(e *Event) { e.Result = Accepted })
		return e.ID
	}
	for range 40 {
		if rng.IntN(3) == 0 { // a writer; the store grants it after all others
			token++
			answered := now + some(1, 50)
			released := answered + some(1, 50)
			add("b", driver.Exclusive, now-some(0, 100), answered, released)
			now = released + some(2, 20)
			continue
		}
		end := now
		for range 1 + rng.IntN(4) { // readers, whose grants the store makes one after the other
			token++
			now += some(1, 20)
			if rng.IntN(2) == 0 {
				answered := now + some(1, 50)
				released := answered + some(1, 100)
				add("b", driver.Shared, now-some(0, 100), answered, released)
				end = max(end, released)
				continue
			}
			heard, group := now+some(10, 100), []string{}
			for i := range 2 + rng.IntN(3) {
				call, answered := now-some(0, 50), heard+some(1, 20)
				if i > 0 {
					call = heard - some(0, 80) // it may be on its way already
				}
				released := answered + some(1, 100)
				group = append(group, add("a", driver.Shared, call, answered, released))
				end = max(end, released)
			}
			groups = append(groups, group)
		}
		now = max(now, end) + some(2, 20)
	}
	return events, groups
}

// The judge finds nothing in a history in which readers join grants that are on their way, and finds a reader
// that has come too late.
func TestReadersThatShare(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 5))
		events, groups := sharing(rng)
		if r := Check(events, Options{Windows: -1}); len(r.Violations()) > 0 {
			t.Fatalf("seed %d: %v", seed, r.Violations())
		}
		group := groups[rng.IntN(len(groups))]
		last, first := group[len(group)-1], int64(never)
		for _, e := range events {
			for _, id := range group[:len(group)-1] {
				if e.ID == id && e.Kind == Granted {
					first = min(first, e.T)
				}
			}
		}
		for i := range events { // the last one asks when another has its answer
			if e := &events[i]; e.ID == last {
				switch e.Kind {
				case Acquire:
					e.T = first + 1
				case Granted:
					e.T, e.From = first+2, first+1
				case Release:
					e.T = first + 3
				case Released:
					e.T = first + 4
				}
			}
		}
		found := false
		for _, v := range Check(events, Options{Windows: -1}).Violations() {
			found = found || v.Class == S4
		}
		if !found {
			t.Fatalf("seed %d: a reader that came after the first of its grant was answered is not found", seed)
		}
	}
}
