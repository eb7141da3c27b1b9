package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// making describes a good history: one name that clients request again and again, in a strict
// queue, with a fenced counter.
type making struct {
	mode     driver.Mode // Shared: a mixture of readers and writers
	clients  int
	grants   int
	name     string
	deaths   bool
	tokens   uint64 // the last one
	plain    bool   // only acquire, granted, release and released
	id       int
	begin    int64
	writerIn int // one in so many is a writer; 0: 4
}

const (
	us      = int64(time.Microsecond)
	millis  = int64(time.Millisecond)
	madeTTL = 300 * time.Millisecond
)

// make simulates a correct store. The events are not in order.
func (m *making) make(rng *rand.Rand) (events []Event) {
	type contender struct {
		client        string
		call, arrival int64
	}
	some := func(lo, hi int64) int64 { return lo + rng.Int64N(hi-lo+1) }
	if m.writerIn == 0 {
		m.writerIn = 4
	}
	queue := make([]contender, m.clients) // a heap by arrival would be faster; there are few
	for i := range queue {
		call := m.begin + some(1, 2*millis)
		queue[i] = contender{fmt.Sprintf("p%d/%s", i, m.name), call, call + some(5, 50)*us}
	}
	const limit = 3
	var free freed
	last, writers, all := int64(0), int64(0), int64(0)
	value, end := int64(0), int64(0)
	for range m.grants {
		first := 0
		for i := range queue {
			if queue[i].arrival < queue[first].arrival {
				first = i
			}
		}
		c := &queue[first]
		m.id++
		e := Event{Client: c.client, ID: fmt.Sprintf("%s-%d", m.name, m.id), Name: m.name}
		add := func(t int64, kind Kind, f func(*Event)) {
			e := e
			e.T, e.Kind = t, kind
			if f != nil {
				f(&e)
			}
			events = append(events, e)
			end = max(end, t)
		}
		mode, n := m.mode, int32(1)
		g := max(c.arrival, last)
		switch {
		case mode == driver.Permits:
			n = int32(some(1, 2))
			at, _ := free.when(n, limit)
			g = max(g, at)
		case mode == driver.Shared && rng.IntN(m.writerIn) > 0:
			g = max(g, writers)
		default:
			mode = driver.Exclusive
			g = max(g, writers, all)
		}
		m.tokens += uint64(some(1, 3))
		grantedAt := g + some(5, 60)*us
		waited := g > c.arrival+200*us
		proof := c.call
		if waited && g-c.call > int64(madeTTL)/3 {
			proof = g - some(0, int64(madeTTL)/3) // the place was renewed
		}
		add(c.call, Acquire, func(e *Event) {
			e.Wait, e.Mode, e.N, e.TTL = true, mode, n, madeTTL
			if mode == driver.Permits {
				e.Limit = limit
			}
		})
		if waited {
			add(c.arrival+some(5, 100)*us, Queued, nil)
		}
		add(grantedAt, Granted, func(e *Event) { e.Token, e.From = m.tokens, proof })
		release := grantedAt + some(20, 3000)*us
		if rng.IntN(60) == 0 && !m.plain {
			release = grantedAt + 2*int64(madeTTL)
		}
		for next := proof + int64(madeTTL)/3; next < release; next += int64(madeTTL) / 3 {
			if next > grantedAt {
				proof = next
				add(next+some(20, 90)*us, Renewed, func(e *Event) { e.Token, e.From = m.tokens, proof })
			}
		}
		if mode == driver.Exclusive && !m.plain {
			fenced := func(e *Event) { e.Token, e.Value, e.Result = m.tokens, value, Accepted }
			add(grantedAt+2*us, Begin, func(e *Event) { e.Token, e.Result = m.tokens, Accepted })
			add(grantedAt+4*us, Read, fenced)
			value++
			add(grantedAt+6*us, Writing, func(e *Event) { e.Token, e.Value = m.tokens, value })
			add(grantedAt+8*us, Write, fenced)
		}
		over := release + some(5, 50)*us
		next := contender{c.client, 0, 0}
		if m.deaths && rng.IntN(40) == 0 {
			add(release, Died, func(e *Event) { *e = Event{T: e.T, Kind: Died, Client: c.client} })
			over = max(release, proof+int64(madeTTL))
			next.call = release + 50*millis
		} else {
			add(release, Release, nil)
			add(over+some(5, 50)*us, Released, func(e *Event) { e.Result = Accepted })
			next.call = over + some(60, 600)*us
		}
		next.arrival = next.call + some(5, 50)*us
		*c = next
		last, all = g, max(all, over)
		if mode == driver.Exclusive {
			writers = max(writers, over)
		}
		if mode == driver.Permits {
			free.add(over, n, 0)
		}
	}
	if !m.plain {
		events = append(events, Event{T: end + millis, Kind: Final, Name: m.name, Value: value})
	}
	// A TTL later the leases of dead clients have expired too.
	events = append(events, Event{T: end + 2*int64(madeTTL), Kind: State, Name: m.name})
	return events
}

// good is a good history of three names, one of each mode, with a fault in it.
func good(seed uint64) []Event {
	rng := rand.New(rand.NewPCG(seed, 7))
	var events []Event
	for i, mode := range []driver.Mode{driver.Exclusive, driver.Shared, driver.Permits} {
		m := &making{mode: mode, clients: 6, grants: 300, name: modeNames[mode], deaths: true, id: 1000 * i, begin: 1}
		events = append(events, m.make(rng)...)
	}
	events = append(events,
		Event{T: 50 * millis, Kind: Fault, ID: "f", Target: "server", Text: "pause"},
		Event{T: 55 * millis, Kind: Healed, ID: "f"},
		Event{T: 1, Kind: Gauge, Client: "p0", Target: "goroutines", Value: 10})
	Sort(events)
	end := events[len(events)-1].T
	return append(events, Event{T: end + 1, Kind: Gauge, Client: "p0", Target: "goroutines", Value: 10})
}

// named returns the index of the event of this kind and attempt, or -1.
func named(events []Event, id string, kind Kind) int {
	return slices.IndexFunc(events, func(e Event) bool { return e.ID == id && e.Kind == kind })
}
