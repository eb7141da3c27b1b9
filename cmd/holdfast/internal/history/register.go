package history

import (
	"maps"
	"slices"
)

// Class S3: the fenced resource. In the order of its own steps (T of Begin, Read and Write):
//
//   - it accepts no token below the highest that it accepted before, reads included;
//   - a Read returns the current value;
//   - an attempt overwrites the value that it read: otherwise the update in between is lost;
//   - at the end the value is that of the last accepted Write. If every Write added one to the
//     value read, it is the first value plus the number of accepted Writes.
//
// A Write with an unknown Result, or a Writing without an answer, may have taken effect or not. Its
// value is possible from its Writing on, until a Read shows the current value. A resource without
// tokens (Token 0) is judged by its values alone.
//
// O(n).

type register struct {
	c        *checker
	name     string
	highest  uint64
	byWhom   ref
	known    bool  // value is
	value    int64 // the current one
	last     ref   // wrote or first read it
	pending  map[string]Event
	maybe    map[int64]ref // values that are possible instead
	read     map[string]ref
	first    int64 // the value at the start
	counts   bool  // every write added one to the value that its attempt had read
	accepted int64
	unsure   int64
}

func (c *checker) register() {
	regs := map[string]*register{}
	accepted, rejected, unknown := 0, 0, 0
	for i := range c.events {
		e := &c.events[i]
		switch e.Kind {
		case Begin, Read, Writing, Write, Final:
		default:
			continue
		}
		r := regs[e.Name]
		if r == nil {
			r = &register{c: c, name: e.Name, counts: true, pending: map[string]Event{}, maybe: map[int64]ref{},
				read: map[string]ref{}}
			regs[e.Name] = r
		}
		r.step(e, ref(i+1))
		switch {
		case e.Kind == Final || e.Kind == Writing:
		case e.Result == Accepted:
			accepted++
		case e.Result == Rejected:
			rejected++
		default:
			unknown++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(regs)) {
		unknown += len(regs[name].pending)
	}
	v := c.verdicts[S3]
	v.fact(factAccepted, accepted)
	v.fact(factRefused, rejected)
	v.fact(factUnknown, unknown)
}

// who identifies the attempt of a write.
func who(e *Event) string {
	if e.ID != "" {
		return e.ID
	}
	return e.Client
}

func (r *register) violation(text string, involved ...ref) {
	var events []Event
	for _, i := range involved {
		if i != 0 {
			events = append(events, *r.c.at(i))
		}
	}
	r.c.violation(S3, r.name, nil, events, "%s", text)
}

func (r *register) step(e *Event, i ref) {
	switch {
	case e.Kind == Final:
		r.final(e, i)
		return
	case e.Kind == Writing:
		r.pending[who(e)] = *e
		r.maybe[e.Value] = i
		return
	case e.Result == Rejected:
		if e.Kind == Write {
			r.forget(who(e))
		}
		return
	case e.Result == Unknown:
		if e.Kind == Write {
			delete(r.pending, who(e))
			r.maybe[e.Value] = i
			r.unsure++
		}
		return
	}
	if e.Token < r.highest {
		r.violation("the resource accepted a token below one that it had seen", r.byWhom, i)
	} else if e.Token > r.highest {
		r.highest, r.byWhom = e.Token, i
	}
	switch e.Kind {
	case Read:
		r.found(e, i)
		r.read[who(e)] = i
	case Write:
		r.wrote(e, i)
	}
}

// forget removes the Writing of a refused write, unless another attempt writes the same value.
func (r *register) forget(w string) {
	p, ok := r.pending[w]
	if !ok {
		return
	}
	delete(r.pending, w)
	for _, other := range r.pending {
		if other.Value == p.Value {
			return
		}
	}
	delete(r.maybe, p.Value)
}

func (r *register) found(e *Event, i ref) {
	switch _, maybe := r.maybe[e.Value]; {
	case !r.known:
		r.first = e.Value
	case e.Value == r.value:
		return
	case maybe: // so it did take effect
		delete(r.maybe, e.Value)
	default:
		r.violation("a value was read that no attempt wrote", r.last, i)
	}
	r.known, r.value, r.last = true, e.Value, i
}

func (r *register) wrote(e *Event, i ref) {
	w := who(e)
	if read := r.read[w]; read != 0 {
		was := r.c.at(read)
		_, maybe := r.maybe[was.Value]
		if r.known && was.Value != r.value && !maybe {
			r.violation("an update was lost: the overwritten value is not the one that was read", read, r.last, i)
		}
		r.counts = r.counts && e.Value == was.Value+1
		delete(r.read, w) // a second write follows the first, not the read
	} else {
		r.counts = false
	}
	delete(r.pending, w)
	if r.maybe[e.Value] != 0 {
		delete(r.maybe, e.Value)
	}
	r.known, r.value, r.last = true, e.Value, i
	r.accepted++
}

func (r *register) final(e *Event, i ref) {
	if _, maybe := r.maybe[e.Value]; r.known && e.Value != r.value && !maybe {
		r.violation("the value at the end is not the one written last", r.last, i)
	}
	most := r.first + r.accepted + r.unsure + int64(len(r.pending))
	if r.counts && r.known && (e.Value < r.first+r.accepted || e.Value > most) {
		r.violation("the value at the end is not the number of accepted writes", r.last, i)
	}
	if e.Token != 0 && e.Token < r.highest {
		r.violation("the resource has forgotten the highest token that it had accepted", r.byWhom, i)
	}
}
