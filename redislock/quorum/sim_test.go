package quorum

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// world is servers by the rules of the scripts, and a network between them and their clients in
// which every message takes a time of its own: messages overtake each other in all ways.
type world struct {
	mu         sync.Mutex
	rng        *rand.Rand
	servers    []*simServer
	ttl        time.Duration
	quarantine time.Duration
	lose       float64 // of the answers and pushes get lost
	older      bool    // servers that lose their data have older ones then, without a restart
	flaw       flaw
}

// flaw is a mistake that the test must notice.
type flaw int

const (
	none     flaw = iota
	hasty         // servers that have forgotten take part at once
	blind         // so do those whose data were replaced without a restart
	stubborn      // nobody is asked to give way
	vain          // a raised token is not remembered
)

// simServer is one server's record of one name.
type simServer struct {
	w      *world
	ahead  time.Duration // its clock, before the others'
	dead   bool
	out    time.Time // it takes part from then on
	last   uint64
	holder simPlace // of the one who has it
	token  uint64
	end    time.Time
	line   []simPlace
	seq    uint64
	copy   *simServer // as it was at some time
}

type simPlace struct {
	id       string
	place    uint64
	deadline time.Time
	who      *simMember
}

func (p simPlace) String() string { return fmt.Sprintf("%s at %d", p.id, p.place) }

// clock is the server's, in microseconds.
func (v *simServer) clock() uint64 { return uint64(time.Now().Add(v.ahead).UnixMicro()) }

func (v *simServer) mint(want uint64) uint64 {
	v.last = max(v.clock(), v.last+1)
	if lead := uint64(redislock.Lead(v.w.quarantine).Microseconds()); want > v.last && want <= v.clock()+lead {
		v.last = want
	}
	return v.last
}

func (v *simServer) give(p simPlace, end time.Time, want uint64) {
	v.holder, v.token, v.end = p, v.mint(want), end
}

// advance lets time pass: leases and places run out, and what is free goes to the line.
func (v *simServer) advance(want uint64) {
	now := time.Now()
	if v.token != 0 && !v.end.After(now) {
		v.token = 0
	}
	v.line = slices.DeleteFunc(v.line, func(p simPlace) bool { return !p.deadline.After(now) })
	if v.token == 0 && len(v.line) > 0 {
		first := v.line[0]
		v.line = v.line[1:]
		v.give(first, first.deadline, want)
		first.who.push(first.id, v.token)
	}
}

func (v *simServer) join(p simPlace) {
	v.line = append(v.line, p)
	slices.SortStableFunc(v.line, func(a, b simPlace) int { return int(a.place) - int(b.place) })
}

func (v *simServer) find(id string) int {
	return slices.IndexFunc(v.line, func(p simPlace) bool { return p.id == id })
}

func (v *simServer) owned(id string, token uint64) error {
	switch {
	case v.token == 0:
		return driver.ErrGone
	case v.holder.id == id && v.token >= token:
		return nil
	case v.token > token:
		return driver.ErrTaken
	}
	return driver.ErrGone
}

// forget empties the server, or gives it the data of its copy, as a replica that was behind does. It then stays out.
func (v *simServer) forget() {
	now := simServer{w: v.w, ahead: v.ahead}
	if v.w.older && v.copy != nil {
		now = *v.copy
	}
	now.out = time.Now().Add(v.w.quarantine)
	if v.w.flaw == hasty || v.w.flaw == blind && v.w.older {
		now.out = time.Now()
	}
	*v = now
}

// keep makes a copy of the server.
func (v *simServer) keep() {
	c := *v
	c.line, c.copy = slices.Clone(v.line), nil
	v.copy = &c
}
