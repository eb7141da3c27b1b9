package history

import (
	"fmt"
	"slices"

	"github.com/holdfast-lock/holdfast/driver"
)

// Class L4. At the end, without load, the store (State) has no more holders or waiters of a name
// than the clients may have. No Gauge is above its first reading. A wrong number of permits is
// class S5: a release was counted twice, or an unanswered request lost permits for ever. A lock
// that a client has and the store does not is class S1.
//
// O(states × attempts of the name).

func (c *checker) endState() {
	numbers := map[string]int32{}
	for i, name := range c.names {
		numbers[name] = int32(i)
	}
	type gauge struct{ client, target string }
	first, last := map[gauge]ref{}, map[gauge]ref{}
	var order []gauge
	states, readings := 0, 0
	for i := range c.events {
		switch e := &c.events[i]; e.Kind {
		case State:
			states++
			name, ok := numbers[e.Name]
			if !ok {
				name = -1
			}
			c.state(e, name)
		case Gauge:
			readings++
			key := gauge{e.Client, e.Target}
			if first[key] == 0 {
				first[key] = ref(i + 1)
				order = append(order, key)
			}
			last[key] = ref(i + 1)
		}
	}
	for _, key := range order {
		if was, is := c.at(first[key]), c.at(last[key]); is.Value > was.Value {
			of := ""
			if is.Client != "" {
				of = " of " + is.Client
			}
			c.violation(L4, "", nil, []Event{*was, *is}, "%d more %s%s than at the start", is.Value-was.Value, is.Target, of)
		}
	}
	c.verdicts[L4].fact(factStates, states)
	c.verdicts[L4].fact(factGauges, readings)
}

// state compares the store's answer for a name with what the clients can have.
func (c *checker) state(e *Event, name int32) {
	var must, may, waiting int64
	permits := e.Limit > 0
	var holders []int32
	if name >= 0 {
		var list []taken
		for _, a := range c.byName[name] {
			h := &c.attempts[a]
			n := int64(1)
			if h.mode == driver.Permits {
				n, permits = int64(h.n), true
			}
			if h.released <= e.T && h.result == Accepted {
				continue
			}
			if h.grantedAt <= e.T && c.guaranteedUntil(h) > e.T {
				must += n
				holders = append(holders, a)
			}
			list = c.takenBy(list[:0], a)
			if slices.ContainsFunc(list, func(t taken) bool { return t.begin <= e.T && t.end > e.T }) {
				may += n
			}
			switch {
			case !h.wait || h.call > e.T:
			case c.waitedUntil(h) > e.T || !h.granted() && h.out == never:
				waiting++
				may += n // its grant may be on the way
			case h.outcome == Cancelled || h.outcome == Unanswered:
				if later(h.out, h.ttl) > e.T {
					waiting++
				}
			}
		}
	}
	class, what := L4, "holders"
	if permits {
		class, what = S5, "permits in use"
	}
	if int64(e.N) > may {
		c.violation(class, e.Name, nil, []Event{*e}, "the store has %d %s; the clients can have at most %d", e.N, what, may)
	}
	if int64(e.N) < must {
		if class = S1; permits {
			class = S5
		}
		c.violation(class, e.Name, holders, []Event{*e}, "the store has %d %s; the clients have %d under guaranteed leases",
			e.N, what, must)
	}
	if e.Value > waiting {
		c.violation(L4, e.Name, nil, []Event{*e}, "%s", fmt.Sprintf("the store has %d waiters; at most %d are possible",
			e.Value, waiting))
	}
}
