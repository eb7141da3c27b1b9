package quorum

import (
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A request is what one contender has at the servers, as far as is known here. What its methods
// decide depends on nothing else: the model test drives them without servers.
type request struct {
	mu     sync.Mutex
	driver driver.Request // what is asked of each server
	need   int            // how many servers are a majority
	seats  []seat
	order  []int // of the servers, for this name: the first counts most

	// since is the exchange that the caller knows to have been answered, at the latest: it counts
	// the lease from then on, so only seats that were proven since may make a grant.
	since   int64
	sinceAt time.Duration // when it was sent

	token   uint64        // agreed on; 0: not granted
	proved  time.Duration // when the last exchange was sent by which a majority proved it
	over    bool          // cancelled, released or lost: whatever else is granted is given back
	keeps   bool          // it is kept instead: the release sees to that
	asking  bool          // somebody listens to news, and decides
	raising bool          // an exchange about the token is under way
	adopted driver.Hold   // what the request was made from, if it was adopted
	news    chan struct{}
	wake    chan uint64 // to the caller
	claims  int         // how often others were asked to give way
	timer   *time.Timer // until they are asked again
}

type state uint8

const (
	nothing state = iota // or it is not known
	waiting
	granted
	leaving // it is being given to another
	kept    // it is being kept after the release
)

// seat is what a request has at one server.
type seat struct {
	state  state
	token  uint64        // granted
	place  uint64        // waiting: in line
	wake   <-chan uint64 // waiting: the server's pushes
	sent   int64         // the last exchange that was sent
	heard  int64         // the last one that was answered
	failed int64         // the last one that was not
	err    error         // of that
	reply  driver.Reply  // waiting or refused: what stands in the way

	// yielded is the last token that was offered to another: whatever is said of it and those
	// before counts no more, since the server may hear of the offer at any time.
	yielded uint64
	ended   int64 // the exchange in which the server said that the grant is over, since a majority proved it
	passing bool  // the release has been sent there
	stray   bool  // and meanwhile it said that it had granted the request
	writer  bool  // it has granted a write lease, as far as is known, also if the request is a reader's by now
	shut    bool  // the server may hear at any time that the request was cancelled: nothing from it counts
}

func newRequest(req *driver.Request, servers int) *request {
	r := &request{
		driver: *req, need: servers/2 + 1, seats: make([]seat, servers), order: make([]int, servers),
		news: make(chan struct{}, 1), wake: make(chan uint64, 1),
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(req.Name))
	from := int(h.Sum32() % uint32(servers))
	for i := range r.order {
		r.order[i] = (from + i) % servers
	}
	return r
}

// count says how many seats are in one of the states, proven since.
func (r *request) count(since int64, states ...state) (n int) {
	for i := range r.seats {
		if s := &r.seats[i]; s.heard >= since && slices.Contains(states, s.state) {
			n++
		}
	}
	return n
}

// firm reports whether the server has granted the request and has answered since: what a dead one has
// granted is of no use, and must not stand in the way of others.
func (s *seat) firm() bool { return s.state == granted && s.failed <= s.heard }

// agreed returns the token that a majority of the servers has given, and proven since.
//
// A server gives each token once, and a majority that knows a token gives only larger ones from
// then on: so the token of a later grant is larger. See doc.go.
func (r *request) agreed(since int64) uint64 {
	for i := range r.seats {
		t, n := r.seats[i].token, 0
		for j := range r.seats {
			if s := &r.seats[j]; s.state == granted && s.token == t && s.heard >= since {
				n++
			}
		}
		if t != 0 && n >= r.need {
			return t
		}
	}
	return 0
}

// common returns the token to agree on if a majority has granted different ones, or too long
// ago: the smallest that a majority can have without going back, so that a few servers whose
// clocks are mad do not decide.
func (r *request) common() uint64 {
	var tokens []uint64
	for i := range r.seats {
		if s := &r.seats[i]; s.firm() {
			tokens = append(tokens, s.token)
		}
	}
	if len(tokens) < r.need {
		return 0
	}
	slices.Sort(tokens)
	return tokens[r.need-1]
}

// rank orders those who share the servers among them: whoever has a majority is first (0), then
// whoever holds the first server of the name's order. -1: it holds nothing.
func (r *request) rank() int {
	n, rank := 0, -1
	for k, i := range r.order {
		if r.seats[i].firm() {
			if n++; rank < 0 {
				rank = k + 1
			}
		}
	}
	if n >= r.need {
		return 0
	}
	return rank
}

// gives reports whether server i has to be given to a claimant of that rank, and begins that.
func (r *request) gives(i, rank int) bool {
	mine := r.rank()
	if r.over || r.token != 0 || r.raising || !r.driver.Wait || r.seats[i].state != granted || mine <= rank {
		return false
	}
	r.seats[i].state, r.seats[i].yielded = leaving, r.seats[i].token
	return true
}

// granted notes that server i has granted the request, in the exchange that was sent as stamp.
func (r *request) granted(i int, stamp int64, token uint64) {
	if s := r.hear(i, stamp); s != nil && token > s.yielded {
		s.state, s.token, s.reply = granted, token, driver.Reply{}
	}
}

// waits notes that server i has the request in line, or has refused it if it does not wait.
func (r *request) waits(i int, stamp int64, place uint64, reply driver.Reply) {
	if s := r.hear(i, stamp); s != nil {
		s.state, s.token, s.place, s.reply = nothing, 0, place, reply
		if reply.Wake != nil {
			s.state, s.wake = waiting, reply.Wake
		}
	}
}

// ended reports whether a server said, since a majority proved the grant, that it is over: somebody may have
// broken it.
func (r *request) ended() bool {
	for i := range r.seats {
		if r.seats[i].ended != 0 {
			return true
		}
	}
	return false
}

// gone notes that server i knows nothing of the request.
func (r *request) gone(i int, stamp int64) {
	if s := r.hear(i, stamp); s != nil {
		s.state, s.token, s.wake, s.reply = nothing, 0, nil, driver.Reply{}
	}
}

// hear returns the seat for what was answered to the exchange stamp, or nil if newer news has
// come before.
func (r *request) hear(i int, stamp int64) *seat {
	s := &r.seats[i]
	if stamp < s.heard {
		return nil
	}
	s.heard = stamp
	if s.shut {
		return nil
	}
	return s
}

// fails notes that server i did not answer.
func (r *request) fails(i int, stamp int64, err error) {
	if s := &r.seats[i]; stamp > s.failed && stamp > s.heard {
		s.failed, s.err = stamp, err
	}
}

// pushed takes what server i has pushed, and reports whether it is news: a grant, or the advice
// to ask again.
func (r *request) pushed(i int) (grant, ask bool) {
	s := &r.seats[i]
	if s.state != waiting {
		return false, false
	}
	select {
	case token := <-s.wake:
		switch {
		case s.shut:
			return false, false
		case token == 0:
			return false, true
		case token <= s.yielded:
			return false, false
		}
		s.state, s.token = granted, token
		return true, false
	default:
		return false, false
	}
}

// end has whatever is granted from now on given back, and tells whoever asks.
func (r *request) end() {
	r.over = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.signal()
}

// signal tells whoever listens that there is news.
func (r *request) signal() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// drain empties a channel of size 1.
func drain[T any](c chan T) {
	select {
	case <-c:
	default:
	}
}

// standing is where the answers to one exchange stand.
type standing struct {
	granted, refused, failed, open int
}

func (r *request) standing(stamp int64) (s standing) {
	for i := range r.seats {
		switch seat := &r.seats[i]; {
		case seat.heard >= stamp && seat.state == granted:
			s.granted++
		case seat.heard >= stamp:
			s.refused++
		case seat.failed >= stamp:
			s.failed++
		default:
			s.open++
		}
	}
	return s
}

// lined reports whether a majority has the request in line, and no server has granted it. It keeps its place
// then when it is asked again and refused.
func (r *request) lined() bool {
	n := 0
	for i := range r.seats {
		switch r.seats[i].state {
		case waiting:
			n++
		case granted:
			return false
		}
	}
	return n >= r.need
}

// notYet is the answer for a request that a majority has not granted.
func (r *request) notYet() driver.Reply {
	var reply driver.Reply
	var times []time.Duration
	got := 0
	first := true
	for _, i := range r.order {
		s := &r.seats[i]
		switch {
		case s.state == granted:
			got++
			continue
		case s.reply.Holder == nil && s.reply.Retry == 0 && s.state != waiting:
			continue
		}
		if first {
			reply.Ahead, first = s.reply.Ahead, false
		}
		if s.reply.Retry > 0 {
			times = append(times, s.reply.Retry)
		}
	}
	// When so many servers are free again that they are a majority.
	slices.Sort(times)
	if n := r.need - got; n > 0 && len(times) > 0 {
		reply.Retry = times[min(n, len(times))-1]
	}
	reply.Holder, _ = r.inTheWay()
	if r.driver.Wait {
		reply.Wake = r.wake
	}
	return reply
}

// inTheWay returns who holds most of the servers, and how many.
func (r *request) inTheWay() (*driver.Holder, int) {
	var best *driver.Holder
	most := 0
	for i := range r.seats {
		h := r.seats[i].reply.Holder
		if h == nil {
			continue
		}
		n, same, common := 0, 0, h
		for j := range r.seats {
			if o := r.seats[j].reply.Holder; o != nil && o.ID == h.ID {
				n++
				if o.Token == h.Token {
					same++
				}
			}
		}
		if n > most || n == most && same >= r.need {
			best, most = common, n
		}
	}
	return best, most
}

// place is the place in line at the server whose order counts: the first that has the request
// in line. It is 0 if the request holds an earlier one, or none has it in line.
func (r *request) place() (place uint64, server int) {
	for _, i := range r.order {
		switch r.seats[i].state {
		case waiting:
			return r.seats[i].place, i
		case granted:
			return 0, i
		}
	}
	return 0, -1
}
