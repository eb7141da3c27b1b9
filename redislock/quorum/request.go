package quorum

import (
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/waiters"
)

// A request is the state of one contender at the servers, as far as this process knows. Its methods
// depend on nothing else, so the model test drives them without servers.
type request struct {
	mu     sync.Mutex
	driver driver.Request // as sent to each server
	need   int            // how many servers are a majority
	votes  []vote
	order  []int // of the servers, for this name: the first counts most

	// since is the latest exchange that the caller knows to be answered. The caller counts the
	// lease from then on, so only votes that prove it may make a grant.
	since term

	token   uint64        // agreed on; 0: not granted
	from    time.Duration // when a majority had granted the request, by the session's clock; 0: not yet
	proof   term          // the exchange by which a majority proved the grant; of several, whose lease ends last
	over    bool          // cancelled, released or lost: any later grant is given back
	keeps   bool          // a later grant is kept instead: the release takes care of it
	kept    time.Duration // until then, by the session's clock
	asking  bool          // an exchange listens to changed, and decides
	raising bool          // an exchange about the token is under way
	adopted driver.Hold   // the grant that the request was made from, if it was adopted
	changed chan struct{}
	wake    waiters.Slot // to the caller
	claims  int          // how often others were asked to give way
	timer   *time.Timer  // until they are asked again; lacking: when it was set, there was no majority
	lacking bool
}

type state uint8

const (
	nothing state = iota // or unknown
	waiting
	granted
	yielding // it is being given to another request
	kept     // it is being kept after the release
)

// vote is the state of a request at one server.
type vote struct {
	state    state
	token    uint64        // granted: its token
	place    uint64        // waiting: its place in the queue
	wake     <-chan uint64 // waiting: the server's pushes
	until    time.Duration // waiting or granted: the server keeps that until then, at least, by the session's clock
	firm     bool          // granted: a majority proved the grant when this server had it; it has had it since
	sent     int64         // the last exchange that was sent
	answered int64         // the last one that was answered
	failed   int64         // the last one that failed
	err      error         // why it failed
	reply    driver.Reply  // waiting or refused: the lock's holder

	// yielded is the last token that was offered to another request. Answers about that token and
	// smaller ones are ignored, because the offer may reach the server at any time.
	yielded uint64
	gave    int64         // the last exchange that had begun when a yield was answered
	ended   bool          // the server reported that the grant is over, since a majority proved it
	heard   time.Duration // when that was, by the session's clock
	missing bool          // because the server had no record of the name
	passing bool          // the release has been sent there
	stray   bool          // a question that was answered after the end may have left a grant or a place there
	writer  bool          // it has granted a write lease, as far as is known, even if the request has become a reader's

	// The request is withdrawn from the server and goes on. Until that is answered, the server's answers
	// are ignored. A withdrawal without an answer may arrive at any time. It ends no grant with a token
	// above limit, so only such a grant counts from then on.
	shut, withdrawing bool
	limit             uint64
	next              int64 // the exchange in which the server is to be asked after that; 0: none

	minimum   bool          // it has recorded the minimum hold of a request that did not wait
	told      time.Duration // when it was last told that, by the session's clock; 0: it has answered
	begun     int           // how many of its grants had to be told
	open      int           // so many questions are under way
	uncounted bool          // it may have a grant or a place of the request that does not count
}

func newRequest(req *driver.Request, servers int) *request {
	r := &request{
		driver: *req, need: servers/2 + 1, votes: make([]vote, servers), order: make([]int, servers),
		changed: make(chan struct{}, 1), wake: waiters.NewSlot(),
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(req.Name))
	from := int(h.Sum32() % uint32(servers))
	for i := range r.order {
		r.order[i] = (from + i) % servers
	}
	return r
}

// count returns how many votes are in one of the states, as answered since.
func (r *request) count(since int64, states ...state) (n int) {
	for i := range r.votes {
		if s := &r.votes[i]; s.answered >= since && slices.Contains(states, s.state) {
			n++
		}
	}
	return n
}

// confirmed reports whether the server has granted the request and has not failed since. The grant
// of a dead server is useless, and must not block others.
func (s *vote) confirmed() bool { return s.state == granted && s.failed <= s.answered }

// agreed returns the token that a majority of the servers has given, and proven for t.
//
// A server gives each token once. A majority that knows a token gives only larger ones from then
// on, so the token of a later grant is larger. See doc.go.
func (r *request) agreed(t term) uint64 {
	for i := range r.votes {
		token, n := r.votes[i].token, 0
		for j := range r.votes {
			if s := &r.votes[j]; s.token == token && s.proves(t) {
				n++
			}
		}
		if token != 0 && n >= r.need {
			return token
		}
	}
	return 0
}

// common returns the token to agree on if a majority has granted different ones, or too long ago.
// It is the smallest token that a majority can have without going back, so that a few wrong clocks
// do not decide.
func (r *request) common() uint64 {
	var tokens []uint64
	for i := range r.votes {
		if s := &r.votes[i]; s.confirmed() {
			tokens = append(tokens, s.token)
		}
	}
	if len(tokens) < r.need {
		return 0
	}
	slices.Sort(tokens)
	return tokens[r.need-1]
}

// rank orders requests that share the servers: 0 has a majority; then the first server held in the
// name's order counts. -1: the request holds nothing.
func (r *request) rank() int {
	n, rank := 0, -1
	for k, i := range r.order {
		if r.votes[i].confirmed() {
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

// gives reports whether server i must be given to a claimant of that rank, and starts that.
func (r *request) gives(i, rank int) bool {
	mine := r.rank()
	if r.over || r.token != 0 || r.raising || !r.driver.Wait || r.votes[i].state != granted || mine <= rank {
		return false
	}
	r.votes[i].state, r.votes[i].yielded = yielding, r.votes[i].token
	return true
}

// granted records that server i granted the request, in the exchange t.
func (r *request) granted(i int, t term, token uint64) {
	r.votes[i].uncounted = r.votes[i].state != granted
	if s := r.accept(i, t.stamp); s != nil && token > max(s.yielded, s.limit) {
		s.begins()
		if s.state != granted || s.token != token { // perhaps it is another grant
			s.until, s.firm = 0, false
		}
		s.state, s.token, s.reply, s.until = granted, token, driver.Reply{}, max(s.until, t.end())
		s.uncounted = false
	}
}

// waits records that server i has queued the request, or has refused it if it does not wait, in the
// exchange t.
func (r *request) waits(i int, t term, place uint64, reply driver.Reply) {
	r.votes[i].uncounted = r.votes[i].uncounted || reply.Wake != nil && r.votes[i].state == nothing
	if s := r.accept(i, t.stamp); s != nil {
		s.state, s.token, s.place, s.reply, s.until = nothing, 0, place, reply, t.end()
		s.uncounted = s.uncounted && t.stamp < s.sent
		if reply.Wake != nil {
			s.state, s.wake = waiting, reply.Wake
		}
	}
}

// ended reports whether a server reported the grant as over since a majority proved it, perhaps after a break.
func (r *request) ended() bool {
	for i := range r.votes {
		if r.votes[i].ended {
			return true
		}
	}
	return false
}

// broken is ended, without servers that have no record of the name. Most of them have lost their data. Others have
// forgotten a grant that ended a minute ago, which the next renewal should have noticed.
func (r *request) broken() bool {
	for i := range r.votes {
		if r.votes[i].broken() {
			return true
		}
	}
	return false
}

// broken reports whether the server has a record by which the grant is over, perhaps because the lease has expired.
func (s *vote) broken() bool { return s.ended && !s.missing }

// gone records that server i does not know the request.
func (r *request) gone(i int, stamp int64) {
	if s := r.accept(i, stamp); s != nil {
		s.state, s.token, s.wake, s.reply = nothing, 0, nil, driver.Reply{}
		s.uncounted = s.uncounted && stamp < s.sent
	}
}

// accept returns the vote for an answer to the exchange stamp, or nil if a newer answer has come
// before.
func (r *request) accept(i int, stamp int64) *vote {
	s := &r.votes[i]
	if stamp < s.answered {
		return nil
	}
	s.answered = stamp
	if s.shut {
		return nil
	}
	return s
}

// fails records that server i did not answer.
func (r *request) fails(i int, stamp int64, err error) {
	if s := &r.votes[i]; stamp > s.failed && stamp > s.answered {
		s.failed, s.err = stamp, err
	}
}

// pushed takes a push of server i, and reports what is new: a grant, or the advice to ask again.
func (r *request) pushed(i int) (grant, ask bool) {
	s := &r.votes[i]
	if s.state != waiting {
		return false, false
	}
	select {
	case token := <-s.wake:
		switch {
		case s.shut:
			return false, false
		case token == 0, token > s.yielded && token <= s.limit:
			return false, true
		case token <= s.yielded:
			return false, false
		}
		s.begins()
		s.state, s.token, s.firm = granted, token, false // it ends when the place would have ended
		return true, false
	default:
		return false, false
	}
}

// end makes sure that later grants are given back, and wakes an exchange that listens.
func (r *request) end() {
	r.over = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.signal()
}

// signal wakes an exchange that listens to changed.
func (r *request) signal() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// queued reports whether a majority has queued the request, and no server has granted it. Such a
// request keeps its place when it is asked again and refused.
func (r *request) queued() bool {
	n := 0
	for i := range r.votes {
		switch r.votes[i].state {
		case waiting:
			n++
		case granted:
			return false
		}
	}
	return n >= r.need
}

// notYet returns the answer for a request without a majority.
func (r *request) notYet() driver.Reply {
	var reply driver.Reply
	var times []time.Duration
	got := 0
	first := true
	for _, i := range r.order {
		s := &r.votes[i]
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
	// The time when so many servers are free again that they are a majority.
	slices.Sort(times)
	if n := r.need - got; n > 0 && len(times) > 0 {
		reply.Retry = times[min(n, len(times))-1]
	}
	if h, servers := r.inTheWay(); h != nil {
		named := *h
		named.Partial = servers < r.need
		reply.Holder = &named
	}
	if r.driver.Wait {
		reply.Wake = r.wake
	}
	return reply
}

// inTheWay returns the holder with the most servers, and their number. A slow server may have given
// its grant another token, which its holder raises; so the token is the one that most servers have. A server
// names one of its readers, and servers may name different ones: so they count together.
func (r *request) inTheWay() (*driver.Holder, int) {
	var best *driver.Holder
	most, agree := 0, 0
	for i := range r.votes {
		h := r.votes[i].reply.Holder
		if h == nil {
			continue
		}
		n, same := 0, 0
		for j := range r.votes {
			o := r.votes[j].reply.Holder
			if o != nil && (o.ID == h.ID || o.Mode == driver.Shared && h.Mode == driver.Shared) {
				n++
				if o.ID == h.ID && o.Token == h.Token {
					same++
				}
			}
		}
		if n > most || n == most && same > agree {
			best, most, agree = h, n, same
		}
	}
	return best, most
}

// place returns the place in the queue at the server whose order counts: the first that has queued
// the request. It is 0 if an earlier server has granted the request, or if none has queued it.
func (r *request) place() (place uint64, server int) {
	for _, i := range r.order {
		switch r.votes[i].state {
		case waiting:
			return r.votes[i].place, i
		case granted:
			return 0, i
		}
	}
	return 0, -1
}
