package holdfast

import "testing"

// A name with grants at too few servers is in use. It becomes free when they have ended, and not before.
func TestEventsOfPartial(t *testing.T) {
	held := &Record{Name: "x", Kind: "lock", Holders: []Holder{{ID: "a", Token: 1}}}
	part := &Record{Name: "x", Kind: "lock", Partial: []Holder{{ID: "a", Token: 1, Partial: true}}}
	free := &Record{Name: "x"}
	for _, c := range []struct {
		before, now *Record
		want        EventType
	}{{held, part, EventEnded}, {part, free, EventFree}, {held, free, EventFree}, {part, held, EventHeld}} {
		if e, any := difference(c.before, false, c.now); !any || e.Type != c.want {
			t.Errorf("%+v to %+v: %v, %v; want %v", c.before, c.now, any, e.Type, c.want)
		}
	}
}
