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

// world is servers that follow the rules of the scripts, and a network between them and their
// clients. Every message takes its own time, so messages overtake each other in all ways.
type world struct {
	mu         sync.Mutex
	rng        *rand.Rand
	servers    []*simServer
	ttl        time.Duration
	quarantine time.Duration
	fast       float64        // so much faster than the clients' clocks are the servers'
	late       time.Duration  // so much longer do requests take
	lose       float64        // fraction of the answers and pushes that get lost
	linger     float64        // fraction of the requests that get no answer, and may arrive later
	lingering  sync.WaitGroup // these requests
	older      bool           // servers that lose their data go back to older data, without a restart
	flaw       flaw
}

// flaw is a mistake that the test must notice.
type flaw int

const (
	none           flaw = iota
	noQuarantine        // servers without their data vote at once
	noReplicaCheck      // so do those whose data were replaced without a restart
	noClaims            // no holder is asked to give way
	forgetsRaise        // a raised token is not remembered
	shortens            // a lease ends when its last exchange says, also if an earlier one made it longer
	oneToken            // a server gives a grant one token, whatever it asked for
	yieldsOne           // a request that has given way waits for one token
	noLimit             // a withdrawal ends a later grant, too
	keepsNothing        // a release ends the minimum hold
)

// simServer is one server's record of one name.
type simServer struct {
	w      *world
	ahead  time.Duration // its clock, ahead of the others'
	dead   bool
	out    time.Time // it votes from then on
	last   uint64
	holder simPlace // the holder
	token  uint64
	end    time.Time // of its lease; zero: it was released, and the name is kept
	kept   time.Time // the end of the minimum hold; zero: there is none
	queue  []simPlace
	seq    uint64
	copy   *simServer // as it was at some time
}

type simPlace struct {
	id       string
	place    uint64
	block    int // how many tokens the grant takes
	deadline time.Time
	hold     time.Duration // the minimum hold of the grant
	who      *simMember
}

func (p simPlace) String() string { return fmt.Sprintf("%s at %d", p.id, p.place) }

// clock returns the server's clock, in microseconds.
func (v *simServer) clock() uint64 { return uint64(time.Now().Add(v.ahead).UnixMicro()) }

// mint makes the token of a grant that takes n.
func (v *simServer) mint(want uint64, n int) uint64 {
	if v.w.flaw == oneToken {
		n = 1
	}
	if v.last == 0 {
		v.last = v.clock() + uint64(n-1)
	} else {
		v.last = max(v.clock(), v.last+uint64(n))
	}
	if lead := uint64(redislock.Lead(v.w.quarantine).Microseconds()); want > v.last && want <= v.clock()+lead {
		v.last = want
	}
	return v.last
}

// till returns when a lease that would end at end ends, if it is renewed as asked.
func (v *simServer) till(end time.Time, asked time.Duration) time.Time {
	lease := driver.LeaseWithin(asked, v.w.ttl)
	renewed := time.Now().Add(lease - time.Duration(float64(lease)*v.w.fast))
	if end.After(renewed) && v.w.flaw != shortens {
		return end
	}
	return renewed
}

// step sets the clock forward.
func (v *simServer) step(d time.Duration) {
	v.ahead += d
	for _, t := range []*time.Time{&v.end, &v.kept} {
		if !t.IsZero() {
			*t = t.Add(-d)
		}
	}
	for i := range v.queue {
		v.queue[i].deadline = v.queue[i].deadline.Add(-d)
	}
}

func (v *simServer) give(p simPlace, end time.Time, want uint64) {
	v.holder, v.token, v.end, v.kept = p, v.mint(want, p.block), end, time.Time{}
	if p.hold > 0 {
		v.kept = time.Now().Add(p.hold)
	}
}

// held reports whether somebody has the lock: its lease is not over.
func (v *simServer) held() bool { return v.token != 0 && v.end.After(time.Now()) }

// drop ends the grant, and with it the minimum hold.
func (v *simServer) drop() { v.token, v.kept = 0, time.Time{} }

// advance lets time pass: leases and places expire, and a free name goes to the queue.
func (v *simServer) advance(want uint64) {
	now := time.Now()
	if v.token != 0 && !v.held() && !v.kept.After(now) {
		v.drop()
	}
	v.queue = slices.DeleteFunc(v.queue, func(p simPlace) bool { return !p.deadline.After(now) })
	if v.token == 0 && len(v.queue) > 0 {
		first := v.queue[0]
		v.queue = v.queue[1:]
		v.give(first, first.deadline, want)
		first.who.push(first.id, v.token)
	}
}

func (v *simServer) join(p simPlace) {
	v.queue = append(v.queue, p)
	slices.SortStableFunc(v.queue, func(a, b simPlace) int { return int(a.place) - int(b.place) })
}

func (v *simServer) find(id string) int {
	return slices.IndexFunc(v.queue, func(p simPlace) bool { return p.id == id })
}

func (v *simServer) owned(id string, token uint64) error {
	switch {
	case !v.held():
		return driver.ErrGone
	case v.holder.id == id && v.token >= token:
		return nil
	case v.token > token:
		return driver.ErrTaken
	}
	return driver.ErrGone
}

// forget empties the server, or gives it the data of its copy, as a replica that was behind does.
// It then has no vote.
func (v *simServer) forget() {
	now := simServer{w: v.w, ahead: v.ahead}
	if v.w.older && v.copy != nil {
		now = *v.copy
	}
	now.out = time.Now().Add(v.w.quarantine)
	if v.w.flaw == noQuarantine || v.w.flaw == noReplicaCheck && v.w.older {
		now.out = time.Now()
	}
	*v = now
}

// keep makes a copy of the server.
func (v *simServer) keep() {
	c := *v
	c.queue, c.copy = slices.Clone(v.queue), nil
	v.copy = &c
}
