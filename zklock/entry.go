package zklock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// entry is a request of this session and the servers' state of it.
type entry struct {
	s    *session
	req  driver.Request
	dir  string // the lock's folder
	uuid string
	requestBase

	// Guarded by the request's mutex. Changed only while the session's mutex is held as well.
	state  state
	unsure bool  // an answer was lost: the servers may have more or less
	nodes  queue // its contender, or the permits that it holds
	token  uint64
	role   role

	// Guarded by the request's mutex.
	checked         bool      // the name is in use as this kind
	limit           int       // of the semaphore, as last read
	seen            int64     // the transaction that had set it
	marked          time.Time // when the minimum hold was marked
	marks           queue
	aloneAt         time.Time    // when it was granted and had no waiter behind it
	deleteOnly      bool         // its release must not change the node's data; see seal.go
	fresh           []zk.Listing // listings of its folders that relist returns next
	watches         []*zk.Watch
	generation      int  // of watches; events of older ones are ignored
	changeHandsOver bool // a change of the watched node is a hand-over; see seal.go

	// Guarded by the session's mutex.
	dead      bool   // it is no longer in the session
	watched   string // the node whose deletion is watched
	gone      bool   // that node was deleted
	changedIn int    // the generation in which the watched node changed
}

// state is how far a request has come.
type state uint8

const (
	idle    state = iota // the servers have nothing of it
	waiting              // it has a contender in the queue
	held                 // it has been granted
)

func newEntry(s *session, req *driver.Request) *entry {
	e := &entry{s: s, req: *req, dir: s.b.folder(req.Name), uuid: uuidOf(req.ID), requestBase: s.newRequestBase()}
	switch req.Mode {
	case driver.Shared:
		e.role = shared
	case driver.Permits:
		e.role = lease
	}
	return e
}

func (e *entry) isDead() bool {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	return e.dead
}

// permits reports whether e wants permits of a semaphore.
func (e *entry) permits() bool { return e.req.Mode == driver.Permits }

// suffix returns what stands before the sequence number in the names of e's contenders.
func (e *entry) suffix() string {
	switch {
	case e.role == shared:
		return readSuffix
	case e.req.ReadWrite:
		return writeSuffix
	default:
		return mutexSuffix
	}
}

// folders returns the folders whose listings decide about e. The first has its contender.
func (e *entry) folders() []string {
	if e.permits() {
		return []string{e.dir + "/" + locksDir, e.dir + "/" + leasesDir, e.dir}
	}
	return []string{e.dir}
}

// path returns the path of a node of e.
func (e *entry) path(n node) string {
	switch {
	case n.role == lease:
		return e.dir + "/" + leasesDir + "/" + n.name
	case e.permits():
		return e.dir + "/" + locksDir + "/" + n.name
	}
	return e.dir + "/" + n.name
}

// setState records what the servers have of e.
func (e *entry) setState(s state, token uint64, nodes ...node) {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	e.state, e.token, e.nodes, e.unsure = s, token, nodes, false
}

// setRole records the role of e's node.
func (e *entry) setRole(r role) {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	e.role = r
}

// noteUncertain records that the servers may have something of e, if err leaves that open.
func (e *entry) noteUncertain(err error) {
	if errors.Is(err, zk.ErrConnectionLoss) {
		e.s.mu.Lock()
		e.unsure = true
		e.s.mu.Unlock()
	}
}

// forget removes e from the session. No wake-up for it follows.
func (e *entry) forget() {
	e.unwatch()
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	e.state, e.unsure, e.nodes, e.dead = idle, false, nil, true
	e.stopWakeups()
	if e.s.entries[e.req.ID] == e {
		delete(e.s.entries, e.req.ID)
	}
}

// unwatch ends the watches that wake e.
func (e *entry) unwatch() {
	e.generation++
	for _, w := range e.watches {
		if w != nil {
			w.Remove()
		}
	}
	e.watches = nil
}

// record returns the data of e's nodes.
func (e *entry) record() record {
	r := record{id: e.req.ID, ttl: e.s.l.Timeout(), info: e.req.Info}
	if e.permits() {
		r.n, r.limit = e.req.N, e.req.Limit
	}
	return r
}

// look reads what the servers have of e, after an answer was lost or when a request is repeated.
// Its sync comes after every request of this session that the servers will ever carry out,
// including requests through another server.
func (e *entry) look(ctx context.Context) error {
	all, err := e.s.l.list(ctx, e.folders()...)
	if err != nil {
		return err
	}
	return e.find(ctx, all)
}

// find takes from its folders' listings what the servers have of e.
func (e *entry) find(ctx context.Context, all []zk.Listing) error {
	var mine, marks queue
	for i := range all {
		in := parseDir(all[i].Names).queue
		mine = append(mine, in.findAll(e.uuid)...)
		marks = append(marks, in.findAll(keptUUID(e.uuid))...)
	}
	if len(mine) == 0 {
		e.setState(idle, 0)
		return nil
	}
	if held := permitsOf(mine); len(held) > 0 { // the grant has ended the place in the queue
		mine = held
	}
	e.marks = marks
	same := slices.EqualFunc(mine, e.nodes, func(a, b node) bool { return a.name == b.name })
	if !e.unsure && e.state != idle && same {
		return nil
	}
	data, stat, err := e.s.l.Get(ctx, e.path(mine[0]))
	if errors.Is(err, zk.ErrNoNode) {
		e.setState(idle, 0)
		return nil
	}
	if err != nil {
		return err
	}
	r := parseRecord(data)
	token := uint64(stat.Czxid)
	if r.token != 0 {
		token = r.token
	}
	s := waiting
	switch {
	case mine[0].role == lease:
		s = held
	case !e.permits():
		e.setRole(mine[0].role)              // somebody may have downgraded it
		if e.state == held || r.token != 0 { // only grants move
			s = held
		}
	}
	e.setState(s, token, mine...)
	return nil
}

// permitsOf returns those of nodes that are permits.
func permitsOf(nodes queue) (out queue) {
	for _, n := range nodes {
		if n.role == lease {
			out = append(out, n)
		}
	}
	return out
}
