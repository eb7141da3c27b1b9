package verify

import (
	"testing"
	"time"
)

// Connections that are open carry nothing more and are told of no end, until they are reset; new ones work.
func TestRelayForget(t *testing.T) {
	r, e, via := relayAndEcho(t)
	a, other := via("p1.1"), via("p2.1")
	a.asks("one")
	e.came("one")
	other.asks("two")
	e.came("two")
	heal := r.begin(harm{process: "p1.1", mode: holdRequests | holdReplies, old: true})
	a.say("lost")
	b := via("p1.1")
	b.asks("three")
	e.came("three")
	other.asks("four")
	e.came("four")
	a.silent()
	heal()
	a.reset()
	e.nothing()
	b.asks("five")
	e.came("five")
}

// What was withheld arrives when the fault ends, even from a client that has gone.
func TestRelayLate(t *testing.T) {
	r, e, via := relayAndEcho(t)
	stays, goes := via("p1.1"), via("p1.1")
	for _, c := range []*caller{stays, goes} {
		c.asks("hello")
		e.came("hello")
	}
	heal := r.begin(harm{process: "p1.1", mode: holdRequests | keep, old: true})
	stays.say("one")
	goes.say("two")
	_ = goes.Close()
	b := via("p1.1")
	b.asks("three")
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
			t.Fatalf("the server got %v only", got)
		}
	}
	if !got["one\n"] || !got["two\n"] {
		t.Errorf("the server got %v", got)
	}
	stays.hears("one")
	stays.asks("four")
	e.came("four")
}
