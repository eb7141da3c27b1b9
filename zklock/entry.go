package zklock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

// entry is a request of this session and what the servers have of it.
type entry struct {
	s    *session
	req  driver.Request
	dir  string // the lock's folder
	uuid string
	pending

	// Guarded by the gate, and changed only with the session's mutex as well.
	state  state
	unsure bool // an answer was lost: the servers may have something of it
	nodes  line // its contender, or the permits that it holds
	token  uint64
	role   role

	// Guarded by the gate.
	checked bool      // the name is in use as this kind
	limit   int       // of the semaphore, as it was last seen
	seen    int64     // the transaction that had set it
	marked  time.Time // when the minimum hold was marked at the servers
	marks   line
	alone   time.Time    // when it was seen to be granted with nobody behind it
	mute    bool         // its release is not to tell who is next, see seal.go
	fresh   []zk.Listing // of its folders, not acted upon yet; see relist
	watches []*zk.Watch
	turn    int  // of the watches that count
	told    bool // a change of what is watched tells that the lock is free, see seal.go

	// Guarded by the session's mutex.
	dead    bool   // it is not in the session any more
	watched string // the node whose deletion is watched
	gone    bool   // that was deleted
	heard   int    // the turn in which what is watched was changed
}

// state is how far a request has come.
type state uint8

const (
	idle    state = iota // the servers have nothing of it
	waiting              // it has a contender in line
	held                 // it has been granted
)

func newEntry(s *session, req *driver.Request) *entry {
	e := &entry{s: s, req: *req, dir: s.b.folder(req.Name), uuid: uuidOf(req.ID), pending: s.pending()}
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

// permits reports whether e is about a semaphore.
func (e *entry) permits() bool { return e.req.Mode == driver.Permits }

// suffix is what the names of e's contender have before the sequence number.
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

// folders are what has to be listed to know where e stands; the first has its contender.
func (e *entry) folders() []string {
	if e.permits() {
		return []string{e.dir + "/" + locksDir, e.dir + "/" + leasesDir, e.dir}
	}
	return []string{e.dir}
}

// path is where a node of e is.
func (e *entry) path(n node) string {
	switch {
	case n.role == lease:
		return e.dir + "/" + leasesDir + "/" + n.name
	case e.permits():
		return e.dir + "/" + locksDir + "/" + n.name
	}
	return e.dir + "/" + n.name
}

// become sets what the servers have of e.
func (e *entry) become(s state, token uint64, nodes ...node) {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	e.state, e.token, e.nodes, e.unsure = s, token, nodes, false
}

// play sets what e's node stands for.
func (e *entry) play(r role) {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	e.role = r
}

// doubt says that the servers may have something of e, if err leaves that open.
func (e *entry) doubt(err error) {
	if errors.Is(err, zk.ErrConnectionLoss) {
		e.s.mu.Lock()
		e.unsure = true
		e.s.mu.Unlock()
	}
}

// forget takes e out of the session. Nothing is heard of it any more.
func (e *entry) forget() {
	e.unwatch()
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	e.state, e.unsure, e.nodes, e.dead = idle, false, nil, true
	e.hush()
	if e.s.entries[e.req.ID] == e {
		delete(e.s.entries, e.req.ID)
	}
}

// unwatch ends the watches that wake e.
func (e *entry) unwatch() {
	e.turn++
	for _, w := range e.watches {
		if w != nil {
			w.Remove()
		}
	}
	e.watches = nil
}

// record is what e's nodes say.
func (e *entry) record() record {
	r := record{id: e.req.ID, ttl: e.s.l.Timeout(), info: e.req.Info}
	if e.permits() {
		r.n, r.limit = e.req.N, e.req.Limit
	}
	return r
}

// look finds out what the servers have of e, after an answer was lost or because somebody
// asks again. The sync before the listing comes after every request of this session that
// the servers will ever carry out, also of those that went through another server.
func (e *entry) look(ctx context.Context) error {
	all, err := e.s.l.list(ctx, e.folders()...)
	if err != nil {
		return err
	}
	return e.find(ctx, all)
}

// find sets what the servers have of e from its folders' listings.
func (e *entry) find(ctx context.Context, all []zk.Listing) error {
	var mine line
	for i := range all {
		for _, n := range read(all[i].Names).line {
			if n.uuid == e.uuid {
				mine = append(mine, n)
			}
		}
	}
	if len(mine) == 0 {
		e.become(idle, 0)
		return nil
	}
	if held := permitsOf(mine); len(held) > 0 { // the place in line went with the grant
		mine = held
	}
	same := slices.EqualFunc(mine, e.nodes, func(a, b node) bool { return a.name == b.name })
	if !e.unsure && e.state != idle && same {
		return nil
	}
	data, stat, err := e.s.l.Get(ctx, e.path(mine[0]))
	if errors.Is(err, zk.ErrNoNode) {
		e.become(idle, 0)
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
		e.play(mine[0].role)                 // it may have been downgraded
		if e.state == held || r.token != 0 { // only grants move
			s = held
		}
	}
	e.become(s, token, mine...)
	return nil
}

// permitsOf are those of nodes that stand for permits.
func permitsOf(nodes line) (out line) {
	for _, n := range nodes {
		if n.role == lease {
			out = append(out, n)
		}
	}
	return out
}
