package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// table is a history by attempts. It is built once and read by all checks.
type table struct {
	events      []Event
	attempts    []attempt
	byName      [][]int32 // attempts of each name, in order of their calls
	byGranted   [][]int32 // granted attempts, in order of their answers
	names       []string
	clients     []string
	process     []string // of each client: the part of its name before the first slash
	lastSeen    []int64  // of each client: T of its last event
	faults      []fault
	own         [][]taken // of each client: its own faults, in order
	leaders     []int64
	deaths      int
	hasEndState bool   // the end state was read
	observed    []bool // of each client: see Observed
	unordered   []bool // of each client: see Unordered
	end         int64  // T of the last event

	malformed []string
	orphans   int
	held      map[int32][]int64 // of an attempt: T of Held events after it was stopped or lost
}

// ref is 1 + the index of an event, 0 for none.
type ref int32

// attempt is one Acquire and all its further events. Unknown times are never.
type attempt struct {
	call, queued, grantedAt int64
	out                     int64 // refused, cancelled or not answered
	release, released       int64
	proof                   int64 // since when the lease counts, as far as proved; noProof before
	lastHeld                int64 // the last Held before it was stopped or lost; noProof
	token                   uint64
	ttl                     time.Duration
	rare                    *rare
	acquire                 ref
	name, client            int32
	n, limit                int32
	mode                    driver.Mode
	outcome                 Kind   // Refused, Cancelled, Unanswered
	free                    bool   // Refused because the lock was not free
	result                  Result // of released
	wait                    bool
}

// rare is what few attempts have.
type rare struct {
	lost, since  int64 // T and From of Lost
	over         int64 // when its client died or was closed
	stopped      int64 // when its process was stopped while it held
	broken       int64 // when an operator ended it
	down, downed int64
	downResult   Result
}

var nothing = rare{lost: never, since: never, over: never, stopped: never, broken: never, down: never, downed: never}

// more returns the rare part, for reading.
func (h *attempt) more() *rare {
	if h.rare == nil {
		return &nothing
	}
	return h.rare
}

// change returns the rare part, for changes.
func (h *attempt) change() *rare {
	if h.rare == nil {
		r := nothing
		h.rare = &r
	}
	return h.rare
}

func (h *attempt) granted() bool { return h.grantedAt != never }

const (
	noProof = math.MinInt64
	never   = math.MaxInt64
)

// fault is one Fault. A fault without a Healed lasts to the end.
type fault struct {
	event      ref
	begin, end int64
	clients    []int32 // affected ones; nil: all share the fault
}

func (t *table) at(r ref) *Event { return &t.events[r-1] }

// id returns the ID of an attempt.
func (t *table) id(a int32) string { return t.at(t.attempts[a].acquire).ID }

type builder struct {
	*table
	ids         map[string]int32 // attempts without a Released; a map of all would cost too much
	name        map[string]int32
	client      map[string]int32
	open        [][]int32 // attempts of each client that may have more events
	byFault     map[string]int
	stopTargets map[string]string // of the stops under way: the target of each
	marks       []ref             // the Run events with a Target
	ttl         time.Duration
	last        int32 // the client of the previous event
}

func newTable(events []Event) *table {
	b := &builder{
		table: &table{events: events, held: map[int32][]int64{}, attempts: make([]attempt, 0, len(events)/5+1)},
		ids:   map[string]int32{}, name: map[string]int32{}, client: map[string]int32{}, byFault: map[string]int{},
		stopTargets: map[string]string{},
	}
	for i := range events {
		b.add(&events[i], ref(i+1))
	}
	if len(events) > 0 {
		b.end = events[len(events)-1].T
	}
	b.mark()
	b.own = make([][]taken, len(b.clients))
	slices.SortStableFunc(b.faults, func(x, y fault) int { return cmp.Compare(x.begin, y.begin) })
	for i := range b.faults {
		f := &b.faults[i]
		f.end = min(f.end, b.end)
		f.clients = b.matching(b.at(f.event).Target)
		for _, c := range f.clients {
			b.own[c] = append(b.own[c], taken{begin: f.begin, end: f.end, a: -1})
		}
	}
	b.byGranted = make([][]int32, len(b.names))
	for name, list := range b.byName {
		inOrder := make([]int32, 0, len(list))
		for _, a := range list {
			if b.attempts[a].granted() {
				inOrder = append(inOrder, a)
			}
		}
		byGranted := func(x, y int32) int { return cmp.Compare(b.attempts[x].grantedAt, b.attempts[y].grantedAt) }
		if !slices.IsSortedFunc(inOrder, byGranted) {
			slices.SortStableFunc(inOrder, byGranted)
		}
		b.byGranted[name] = inOrder
	}
	return b.table
}

// matching returns the clients that are target, or that belong to the process target.
func (b *builder) matching(target string) (list []int32) {
	for i, c := range b.clients {
		if c == target || b.process[i] == target {
			list = append(list, int32(i))
		}
	}
	return list
}

func (b *builder) bad(e *Event, what string) {
	if len(b.malformed) < maxListed {
		b.malformed = append(b.malformed, fmt.Sprintf("%s of id %q at %d: %s", e.Kind, e.ID, e.T, what))
	}
}

func (b *builder) clientOf(s string) int32 {
	if len(b.clients) > 0 && b.clients[b.last] == s {
		return b.last
	}
	i, ok := b.client[s]
	b.last = i
	if !ok {
		i = int32(len(b.clients))
		b.client[s], b.last = i, i
		process, _, _ := strings.Cut(s, "/")
		b.clients, b.process = append(b.clients, s), append(b.process, process)
		b.lastSeen, b.open = append(b.lastSeen, 0), append(b.open, nil)
	}
	return i
}

func (b *builder) add(e *Event, r ref) {
	switch e.Kind {
	case Acquire:
		b.seen(e)
		b.begin(e, r)
	case Queued, Granted, Refused, Cancelled, Unanswered, Settled, Renewed, Held, Lost, Downgrade, Downgraded, Release,
		Released:
		c := b.seen(e)
		if a := b.find(e, c); a >= 0 {
			b.step(&b.attempts[a], a, e)
			// They mean nothing after the end.
		} else if e.Kind != Renewed && e.Kind != Held && e.Kind != Lost {
			b.orphans++
		}
	case Begin, Read, Writing, Write:
		if e.Client != "" {
			b.seen(e)
		}
	case Fault:
		if _, twice := b.byFault[e.ID]; twice {
			b.bad(e, "the fault had begun before")
			return
		}
		b.byFault[e.ID] = len(b.faults)
		b.faults = append(b.faults, fault{event: r, begin: e.T, end: never})
		if e.Text == FaultStop {
			b.stopTargets[e.ID] = e.Target
			b.stop(e)
		}
	case Healed:
		if i, ok := b.byFault[e.ID]; ok {
			b.faults[i].end = e.T
			delete(b.stopTargets, e.ID)
		} else {
			b.bad(e, "no such fault had begun")
		}
	case Leader:
		b.leaders = append(b.leaders, e.T)
	case Died, Closed:
		if e.Kind == Died {
			b.deaths++
		}
		for _, c := range b.matching(e.Client) {
			for _, a := range b.open[c] {
				h := b.attempts[a].change()
				h.over = min(h.over, e.T)
			}
			b.open[c] = nil
		}
	case Broken:
		for _, list := range b.open {
			for _, a := range list {
				if h := &b.attempts[a]; h.token == e.Token && b.names[h.name] == e.Name {
					m := h.change()
					m.broken = min(m.broken, e.T)
				}
			}
		}
	case State, Final:
		b.hasEndState = true
	case Run:
		if e.TTL != 0 {
			b.ttl = e.TTL
		}
		if e.Target != "" {
			b.marks = append(b.marks, r)
		}
	}
}

func (b *builder) seen(e *Event) int32 {
	c := b.clientOf(e.Client)
	b.lastSeen[c] = e.T
	return c
}

func (b *builder) begin(e *Event, r ref) {
	if _, twice := b.ids[e.ID]; twice {
		b.bad(e, "another attempt with this id has not ended")
		return
	}
	h := attempt{
		client: b.clientOf(e.Client), mode: e.Mode, wait: e.Wait, n: max(e.N, 1), limit: e.Limit,
		ttl: e.TTL, proof: noProof, lastHeld: noProof, acquire: r,
		call: e.T, queued: never, grantedAt: never, out: never, release: never, released: never,
	}
	if h.mode == 0 {
		h.mode = driver.Exclusive
	}
	if h.ttl == 0 {
		h.ttl = b.ttl
	}
	var ok bool
	if h.name, ok = b.name[e.Name]; !ok {
		h.name = int32(len(b.names))
		b.name[e.Name] = h.name
		b.names, b.byName = append(b.names, e.Name), append(b.byName, nil)
	}
	a := int32(len(b.attempts))
	b.ids[e.ID] = a
	b.attempts = append(b.attempts, h)
	b.byName[h.name] = append(b.byName[h.name], a)
	b.open[h.client] = append(b.open[h.client], a)
}

// find returns the attempt of e, or -1.
func (b *builder) find(e *Event, client int32) int32 {
	list := b.open[client]
	for i := len(list) - 1; i >= 0; i-- {
		h := &b.attempts[list[i]]
		if e.ID != "" && b.id(list[i]) == e.ID || e.ID == "" && h.token == e.Token &&
			(e.Name == "" || b.names[h.name] == e.Name) {
			return list[i]
		}
	}
	if a, ok := b.ids[e.ID]; ok && e.ID != "" {
		return a
	}
	return -1
}

// step handles the next event of attempt h, which has number a.
func (b *builder) step(h *attempt, a int32, e *Event) {
	slot := &h.out
	switch e.Kind {
	case Queued:
		h.queued = min(h.queued, e.T) // later ones are reports of the place
		return
	case Renewed:
		from := e.From
		if from == 0 {
			from = e.T
		}
		h.proof = max(h.proof, from)
		return
	case Held:
		if m := h.more(); m.stopped != never || m.lost != never {
			b.held[a] = append(b.held[a], e.T)
		} else {
			h.lastHeld = e.T
		}
		return
	case Settled:
		if h.token == 0 {
			h.token = e.Token
		}
		return
	case Lost:
		if h.more().lost == never { // it may be recorded more than once
			m := h.change()
			if m.lost = e.T; e.From != 0 {
				m.since = e.From
			}
		}
		return
	case Granted:
		slot = &h.grantedAt
		h.token = e.Token
		from := e.From
		if from == 0 {
			from = h.call // the earliest possible
		}
		h.proof = max(h.proof, from)
		if b.isStopped(h.client) {
			m := h.change()
			m.stopped = min(m.stopped, e.T)
		}
		if h.out != never {
			b.bad(e, "the attempt already had another outcome")
		}
	case Refused, Cancelled, Unanswered:
		if h.granted() {
			b.bad(e, "the attempt had already been granted")
		}
		h.outcome, h.free = e.Kind, e.Result == Rejected
		b.forget(h.client, a)
	case Downgrade:
		slot = &h.change().down
	case Downgraded:
		slot = &h.change().downed
		h.rare.downResult = e.Result
	case Release:
		slot = &h.release
	case Released:
		slot = &h.released
		h.result = e.Result
		b.forget(h.client, a)
		delete(b.ids, e.ID)
	}
	if *slot != never {
		b.bad(e, "the attempt already had one")
		return
	}
	*slot = e.T
}

func (b *builder) forget(client, a int32) {
	list := b.open[client]
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == a {
			b.open[client] = slices.Delete(list, i, i+1)
			return
		}
	}
}
