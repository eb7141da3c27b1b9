package history

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestMadeIsGood(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		if r := Check(good(seed), Options{Windows: -1}); r.Outcome != Clean {
			t.Fatalf("seed %d: %s", seed, r)
		}
	}
}

// damaged is a history with one change.
type damaged struct {
	rng    *rand.Rand
	events []Event
}

func (d *damaged) drop(f func(Event) bool) { d.events = slices.DeleteFunc(d.events, f) }

func (d *damaged) at(id string, kind Kind) *Event {
	if i := named(d.events, id, kind); i >= 0 {
		return &d.events[i]
	}
	return nil
}

func (d *damaged) add(e Event) { d.events = append(d.events, e) }

// pick returns two attempts of the name of this mode for which ok holds. The second is the next
// grant after the first, and both are released.
func (d *damaged) pick(mode driver.Mode, ok func(a, b string) bool) (a, b string) {
	var ids []string
	for _, e := range d.events {
		if e.Kind == Granted && e.Name == modeNames[mode] {
			ids = append(ids, e.ID)
		}
	}
	for _, i := range d.rng.Perm(len(ids) - 1) {
		a, b := ids[i], ids[i+1]
		if d.at(a, Released) != nil && d.at(b, Released) != nil && (ok == nil || ok(a, b)) {
			return a, b
		}
	}
	panic("no such pair in the history")
}

// lives reports whether the client of attempt a lives at least so long.
func (d *damaged) lives(a string, long time.Duration) bool {
	call := d.at(a, Acquire)
	return !slices.ContainsFunc(d.events, func(e Event) bool {
		return e.Kind == Died && e.Client == call.Client && e.T > call.T && e.T-call.T < int64(long)
	})
}

// shift moves all events from t on by a long time.
func (d *damaged) shift(t int64) {
	for i := range d.events {
		if e := &d.events[i]; e.T >= t {
			e.T += 10 * int64(time.Second)
			if e.From >= t {
				e.From += 10 * int64(time.Second)
			}
		}
	}
}

// waits reports whether b waited while a had the lock.
func (d *damaged) waits(a, b string) bool {
	return d.at(b, Acquire).T < d.at(a, Granted).T && d.at(b, Granted).T > d.at(a, Release).T
}

// shorten makes a's lease end before b's grant, and removes a's release, so that a goes on.
func (d *damaged) shorten(a, b string) (during int64) {
	d.at(a, Acquire).TTL = time.Duration(d.at(b, Granted).T-d.at(a, Granted).From) / 2
	d.drop(func(e Event) bool { return e.ID == a && (e.Kind == Release || e.Kind == Released || e.Kind == Renewed) })
	return (d.at(b, Granted).T + d.at(b, Release).T) / 2
}

var damages = []struct {
	what  string
	class Class
	do    func(d *damaged)
}{
	{"granted inside a lease", S1, func(d *damaged) {
		a, b := d.pick(driver.Exclusive, d.waits)
		d.at(b, Granted).T = d.at(a, Granted).T + us
	}},
	{"released late, granted in between", S1, func(d *damaged) {
		a, b := d.pick(driver.Exclusive, nil)
		d.at(a, Release).T = d.at(b, Granted).T + 2*us
		d.at(a, Released).T = d.at(b, Granted).T + 3*us
	}},
	{"gone inside a lease", S1, func(d *damaged) {
		a, _ := d.pick(driver.Exclusive, func(a, _ string) bool {
			return d.at(a, Released).T < d.at(a, Granted).From+100*millis
		})
		d.at(a, Released).Result = Rejected
	}},
	{"asserted beyond a lease", S2, func(d *damaged) {
		a, b := d.pick(driver.Exclusive, d.waits)
		t := d.shorten(a, b)
		d.add(Event{T: t, Kind: Held, Client: d.at(a, Granted).Client, ID: a, Name: "exclusive"})
		d.add(Event{T: d.at(b, Release).T - us, Kind: Lost, Client: d.at(a, Granted).Client, ID: a, Name: "exclusive"})
	}},
	{"lost far too late", S2, func(d *damaged) {
		a, b := d.pick(driver.Exclusive, func(a, b string) bool { return d.at(b, Release).T-d.at(b, Granted).T > 100*millis })
		d.shorten(a, b)
		d.add(Event{T: d.at(b, Release).T - us, Kind: Lost, Client: d.at(a, Granted).Client, ID: a, Name: "exclusive"})
	}},
	{"held after lost", S2, func(d *damaged) {
		a, _ := d.pick(driver.Shared, nil)
		g := *d.at(a, Granted)
		g.Kind, g.T, g.Token = Lost, g.T+1, 0
		d.add(g)
		g.Kind, g.T = Held, g.T+1
		d.add(g)
	}},
	{"a stale write accepted", S3, func(d *damaged) {
		a, b := d.pick(driver.Exclusive, nil)
		d.at(a, Write).T = d.at(b, Begin).T + 1
	}},
	{"a write lost", S3, func(d *damaged) {
		a, _ := d.pick(driver.Exclusive, nil)
		d.drop(func(e Event) bool { return e.ID == a && (e.Kind == Write || e.Kind == Writing) })
	}},
	{"a value damaged", S3, func(d *damaged) {
		a, _ := d.pick(driver.Exclusive, nil)
		d.at(a, Read).Value += 1000
	}},
	{"an update lost", S3, func(d *damaged) {
		// b reads the same as a, and both write the same.
		a, b := d.pick(driver.Exclusive, nil)
		r, w := d.at(b, Read), d.at(b, Write)
		r.T, r.Value, w.Value = d.at(a, Read).T+1, d.at(a, Read).Value, d.at(a, Write).Value
		r.Token = d.at(a, Read).Token // an unfenced read
		d.at(b, Writing).Value = w.Value
	}},
	{"the end value damaged", S3, func(d *damaged) {
		i := slices.IndexFunc(d.events, func(e Event) bool { return e.Kind == Final && e.Name == "exclusive" })
		d.events[i].Value--
	}},
	{"tokens swapped", S4, func(d *damaged) {
		a, b := d.pick(driver.Exclusive, nil)
		x, y := d.at(a, Granted), d.at(b, Granted)
		x.Token, y.Token = y.Token, x.Token
	}},
	{"tokens of readers go back", S4, func(d *damaged) {
		a, _ := d.pick(driver.Shared, nil)
		d.at(a, Granted).Token = 1
	}},
	{"a token repeated", S4, func(d *damaged) {
		a, b := d.pick(driver.Permits, nil)
		d.at(b, Granted).Token = d.at(a, Granted).Token
	}},
	{"a reader is a writer", S5, func(d *damaged) {
		a, _ := d.pick(driver.Shared, func(a, b string) bool {
			return d.at(a, Acquire).Mode == driver.Shared && d.at(b, Acquire).Mode == driver.Shared &&
				d.at(b, Granted).T < d.at(a, Release).T-us
		})
		d.at(a, Acquire).Mode = driver.Exclusive
	}},
	{"more permits than there are", S5, func(d *damaged) {
		_, b := d.pick(driver.Permits, func(a, b string) bool { return d.at(b, Granted).T < d.at(a, Release).T-us })
		d.at(b, Acquire).N = 3
	}},
	{"one permit too many at the end", S5, func(d *damaged) {
		i := slices.IndexFunc(d.events, func(e Event) bool { return e.Kind == State && e.Name == "permits" })
		d.events[i].N = 1
	}},
	{"nothing after a death", L1, func(d *damaged) {
		i := slices.IndexFunc(d.events, func(e Event) bool {
			return e.Kind == Died && e.T > 100*millis && strings.HasSuffix(e.Client, "/exclusive")
		})
		d.shift(d.events[i].T + 1)
	}},
	{"no waiter woken after a release", L2, func(d *damaged) {
		a, _ := d.pick(driver.Exclusive, func(a, b string) bool {
			return d.waits(a, b) && d.at(a, Released).T > 100*millis && d.at(a, Released).T < d.at(b, Granted).T
		})
		d.shift(d.at(a, Released).T + 1)
	}},
	{"a waiter forgotten", L2, func(d *damaged) {
		a, _ := d.pick(driver.Permits, func(a, _ string) bool { return d.lives(a, time.Hour) })
		d.drop(func(e Event) bool { return e.ID == a && e.Kind != Acquire && e.Kind != Queued })
	}},
	{"a waiter passed over until it cancelled", L3, func(d *damaged) {
		a, _ := d.pick(driver.Shared, func(a, _ string) bool {
			return d.at(a, Queued) != nil && d.at(a, Queued).T > 400*millis && d.lives(a, 5*madeTTL)
		})
		g := d.at(a, Granted)
		g.Kind, g.T, g.Token = Cancelled, g.T+3*int64(madeTTL), 0
		d.drop(func(e Event) bool { return e.ID == a && (e.Kind == Release || e.Kind == Released || e.Kind == Renewed) })
	}},
	{"a waiter missing in the queue", L3, func(d *damaged) {
		a, _ := d.pick(driver.Exclusive, func(a, _ string) bool {
			return d.at(a, Queued) != nil && d.at(a, Queued).T > 400*millis && d.lives(a, 5*madeTTL)
		})
		d.drop(func(e Event) bool { return e.ID == a && e.Kind != Acquire && e.Kind != Queued })
	}},
	{"refused though free", L2, func(d *damaged) {
		last := d.events[len(d.events)-1].T
		d.add(Event{T: last + int64(time.Hour), Kind: Acquire, Client: "p0/z", ID: "z", Name: "exclusive", TTL: madeTTL})
		d.add(Event{T: last + int64(time.Hour) + us, Kind: Refused, Client: "p0/z", ID: "z", Name: "exclusive",
			Result: Rejected})
	}},
	{"overtaken in the queue", L3, func(d *damaged) {
		a, b := d.pick(driver.Exclusive, func(a, b string) bool {
			return d.at(a, Queued) != nil && d.at(b, Queued) != nil && d.at(a, Acquire).T > 400*millis &&
				d.at(a, Queued).T < d.at(b, Acquire).T && d.at(b, Queued).T < d.at(a, Granted).T
		})
		for _, kind := range []Kind{Acquire, Queued} {
			x, y := d.at(a, kind), d.at(b, kind)
			x.T, y.T = y.T, x.T
		}
	}},
	{"a remaining holder", L4, func(d *damaged) {
		i := slices.IndexFunc(d.events, func(e Event) bool { return e.Kind == State && e.Name == "shared" })
		d.events[i].N = 1
	}},
	{"a remaining waiter", L4, func(d *damaged) {
		i := slices.IndexFunc(d.events, func(e Event) bool { return e.Kind == State && e.Name == "exclusive" })
		d.events[i].Value = 2
	}},
	{"remaining goroutines", L4, func(d *damaged) { d.events[len(d.events)-1].Value++ }},
	{"a fault after the end", V, func(d *damaged) {
		last := d.events[len(d.events)-1].T
		d.add(Event{T: last + int64(time.Hour), Kind: Fault, ID: "late", Target: "server", Text: "pause"})
	}},
	{"a missing attempt", V, func(d *damaged) {
		a, _ := d.pick(driver.Shared, nil)
		d.drop(func(e Event) bool { return e.ID == a && e.Kind == Acquire })
	}},
}

// TestDamage: a good history with one change gets a violation of the change's class.
func TestDamage(t *testing.T) {
	t.Parallel()
	for _, m := range damages {
		t.Run(m.what, func(t *testing.T) {
			for seed := range uint64(testenv.Rounds(1, 3)) {
				d := &damaged{rand.New(rand.NewPCG(seed, 9)), good(seed)}
				m.do(d)
				Sort(d.events)
				r := Check(d.events, Options{})
				switch {
				case m.class == V && r.Outcome != Inconclusive:
					t.Fatalf("seed %d: %s; want inconclusive", seed, r)
				case m.class != V && !slices.Contains(classesOf(r), m.class):
					t.Fatalf("seed %d: not caught as %s\n%s", seed, m.class, r)
				}
			}
		})
	}
	seen := map[Class]bool{}
	for _, m := range damages {
		seen[m.class] = true
	}
	for _, c := range Classes {
		if !seen[c] {
			t.Errorf("no damage of class %s", c)
		}
	}
}
