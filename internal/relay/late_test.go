package relay

import (
	"testing"
	"time"
)

// Open connections carry nothing more, without an error, until they are reset; new ones work.
func TestRelayForget(t *testing.T) {
	r, e, via := relayAndEcho(t)
	a, other := via("p1.1"), via("p2.1")
	a.exchange("one")
	e.came("one")
	other.exchange("two")
	e.came("two")
	heal := r.Begin(Impairment{Client: "p1.1", Mode: Hold, Old: true})
	a.send("lost")
	b := via("p1.1")
	b.exchange("three")
	e.came("three")
	other.exchange("four")
	e.came("four")
	a.silent()
	heal()
	a.reset()
	e.nothing()
	b.exchange("five")
	e.came("five")
}

// Withheld bytes arrive when the fault ends, even from a client that has gone.
func TestRelayLate(t *testing.T) {
	r, e, via := relayAndEcho(t)
	stays, goes := via("p1.1"), via("p1.1")
	for _, c := range []*caller{stays, goes} {
		c.exchange("hello")
		e.came("hello")
	}
	heal := r.Begin(Impairment{Client: "p1.1", Mode: HoldRequests | Keep, Old: true})
	stays.send("one")
	goes.send("two")
	_ = goes.Close()
	b := via("p1.1")
	b.exchange("three")
	e.came("three")
	stays.silent()
	e.nothing()
	heal()
	got := map[string]bool{}
	for range 2 {
		select {
		case line := <-e.got:
			got[line] = true
		case <-time.After(20 * time.Second):
			t.Fatalf("the server got only %v", got)
		}
	}
	if !got["one\n"] || !got["two\n"] {
		t.Errorf("the server got %v", got)
	}
	stays.receives("one")
	stays.exchange("four")
	e.came("four")
}

// The first of two such faults delivers the bytes that it withholds. A later cut in which nothing is
// sent does not reset the connection.
func TestRelayLateTwice(t *testing.T) {
	r, e, via := relayAndEcho(t)
	a := via("p1.1")
	a.exchange("hello")
	e.came("hello")
	late := Impairment{Mode: HoldRequests | Keep, Old: true}
	first, second := r.Begin(late), r.Begin(late)
	a.send("one")
	a.silent()
	first()
	e.came("one")
	a.receives("one")
	second()
	r.Begin(Impairment{Mode: Hold})()
	a.exchange("two")
	e.came("two")
}
