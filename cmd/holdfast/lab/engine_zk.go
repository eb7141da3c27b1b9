package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/servers/zookeeper"
	"github.com/holdfast-lock/holdfast/internal/zk"
	"github.com/holdfast-lock/holdfast/zklock"
)

// ZooKeeper is the store of the rows in rows_zk.go.
const ZooKeeper Store = "zookeeper"

// zkEngine is ZooKeeper. A session is one of ZooKeeper's. Its commands are those of zkCli, with
// answers of one line; paths begin with /R, and are of the run alone:
//
//	create [-e] PATH [DATA]      OK
//	create -s [-e] PATH [DATA]   the name of the node, with its number
//	delete PATH                  OK
//	set PATH DATA                OK
//	get PATH                     the data
//	ls PATH                      [the children, sorted]
//	stat PATH                    exists
//	watch PATH                   exists; it also sets a watch, even if the answer is "no node"
//	await PATH                   the next event of the watches of PATH: it keeps the client waiting
//
// What the server refuses is "error: no node", "error: node exists", "error: session expired".
type zkEngine struct {
	addr     string
	sessions []*zkSession
	lab      *zkSession // of the lab itself
}

func (e *zkEngine) session(c *client) (session, error) {
	s := &zkSession{prefix: c.prefix, addr: e.addr, events: map[string]*zkEvents{}, waits: make(chan zkAwait, 1)}
	var err error
	s.zk, err = zk.Dial(c.ctx, zk.Config{Servers: []string{e.addr}, Timeout: zkExpiry, Dialer: s.dial})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	e.sessions = append(e.sessions, s)
	c.cleanup = append(c.cleanup, s.close)
	return s, nil
}

// pass ends the sessions of clients that have been cut off, or dead, for the lease of an algorithm.
// The others send pings, so their sessions stay.
func (e *zkEngine) pass(p *scenario, d time.Duration) (ended int) {
	for _, s := range e.sessions {
		if s.silent(d) < lease || s.expired {
			continue
		}
		p.must(s.expire())
		ended++
	}
	return ended
}

func (e *zkEngine) look(p *scenario) string {
	s := e.own(p)
	text, err := s.send(p.ctx, "ls /R")
	p.must(err)
	if text == "[]" || strings.HasPrefix(text, "error") {
		text, err = s.send(p.ctx, "get /R")
		p.must(err)
		return "at the server: get /R → " + p.plain(text)
	}
	return "at the server: ls /R → " + p.plain(text)
}

// own returns the session of the lab itself.
func (e *zkEngine) own(p *scenario) *zkSession {
	if e.lab == nil {
		s, err := e.session(&client{scenario: p})
		p.must(err)
		e.lab = s.(*zkSession)
	}
	return e.lab
}

// zkRoot is the root of holdfast's locks.
func zkRoot(p *scenario) string { return "/" + p.prefix + "R" }

// backend's network is a relay. Sessions of holdfast expire by real time: a lease lasts three fifths of
// the timeout.
func (e *zkEngine) backend(p *scenario, ttl time.Duration) (driver.Backend, network) {
	n, err := newRelayed("tcp", e.addr)
	p.must(err)
	p.cleanup = append(p.cleanup, func() { _ = n.Close() })
	b, err := zklock.New(zklock.Config{Servers: []string{e.addr}, Root: zkRoot(p), Session: ttl * 5 / 3, Dialer: n.dial})
	p.must(err)
	p.cleanup = append(p.cleanup, func() { _ = b.Close() })
	return b, n
}

// zkSession is a session of a client of an algorithm.
type zkSession struct {
	prefix string
	addr   string
	zk     *zk.Session

	expired bool // the lab has ended it

	mu     sync.Mutex
	mode   linkMode
	passed time.Duration // for how long it has been cut off, or dead
	conn   net.Conn
	events map[string]*zkEvents // of the watches, by path
	waits  chan zkAwait         // has the await that waits
}

// zkEvents are the events of all watches of one path.
type zkEvents struct {
	list  []zk.EventType
	taken int           // by an await, or meant for one that waits
	more  chan struct{} // closed when list grows
}

// zkAwait waits for the event with this number.
type zkAwait struct {
	events *zkEvents
	n      int
}

// dial connects, unless the client is cut off or dead.
func (s *zkSession) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && (s.mode == cut || s.mode == dead) {
		_ = c.Close()
		return nil, errBroken
	}
	s.conn = c
	return c, err
}

// set closes the connection of a client that is cut off or dead. The server keeps its session.
func (s *zkSession) set(mode linkMode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = mode
	if mode == passing {
		s.passed = 0
	}
	if (mode == cut || mode == dead) && s.conn != nil {
		_ = s.conn.Close()
	}
}

// next returns the mode of one request. Modes for one request end with it.
func (s *zkSession) next() linkMode {
	s.mu.Lock()
	defer s.mu.Unlock()
	mode := s.mode
	if mode == losing || mode == failing {
		s.mode = passing
	}
	return mode
}

// silent adds d to the time for which the session has been silent, and returns it.
func (s *zkSession) silent(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode == cut || s.mode == dead {
		s.passed += d
	}
	return s.passed
}

// expire ends the session at the server, as its timeout does. Nothing else uses a session that is
// cut off, so one try is enough.
func (s *zkSession) expire() error {
	c, err := zkDial(s.addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	alive, err := zookeeper.CloseSession(c, s.zk.ID(), s.zk.Password())
	if err == nil && !alive {
		err = errors.New("the server has already ended the session")
	}
	s.expired = true
	return err
}

// close ends the session on this side. A session that is cut off stays at the server, until the
// server ends.
func (s *zkSession) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if m := s.next(); m == cut || m == dead {
		cancel()
	}
	_ = s.zk.Close(ctx)
}

func (s *zkSession) send(ctx context.Context, command string) (answer string, err error) {
	mode := s.next()
	switch mode {
	case cut, dead, failing:
		return "", errBroken
	}
	words := strings.Fields(command)
	for i, w := range words {
		if rest, ok := strings.CutPrefix(w, "/R"); ok {
			words[i] = "/" + s.prefix + "R" + rest
		}
	}
	answer, err = s.do(ctx, words)
	var code zk.Code
	switch {
	case mode == losing:
		return "", errSilent
	case errors.Is(err, zk.ErrSessionExpired):
		return "error: session expired", nil
	case errors.Is(err, zk.ErrConnectionLoss), errors.Is(err, zk.ErrNotSent):
		return "", err
	case errors.As(err, &code):
		return "error: " + cmp.Or(zkRefusals[code], code.Error()), nil
	}
	return answer, err
}

// zkRefusals are the answers of the server to wrong requests, as in zkCli.
var zkRefusals = map[zk.Code]string{
	zk.ErrNoNode: "no node", zk.ErrNodeExists: "node exists", zk.ErrNotEmpty: "not empty",
}

// do sends one command.
func (s *zkSession) do(ctx context.Context, words []string) (string, error) {
	mode, sequential := zk.Persistent, false
	name := words[0]
	words = slices.DeleteFunc(words[1:], func(w string) bool {
		switch w {
		case "-e":
			mode |= zk.Ephemeral
		case "-s":
			mode |= zk.PersistentSequential
			sequential = true
		}
		return strings.HasPrefix(w, "-")
	})
	if len(words) == 0 {
		return "", fmt.Errorf("%w: %s has no path", driver.ErrInvalid, name)
	}
	path, data := words[0], []byte(strings.Join(words[1:], " "))
	switch name {
	case "create":
		made, _, err := s.zk.Create(ctx, path, data, mode, zk.WorldACL(zk.PermAll))
		if err != nil || !sequential {
			return "OK", err
		}
		return made[strings.LastIndexByte(made, '/')+1:], nil
	case "delete":
		return "OK", s.zk.Delete(ctx, path, zk.AnyVersion)
	case "set":
		_, err := s.zk.Set(ctx, path, data, zk.AnyVersion)
		return "OK", err
	case "get":
		data, _, err := s.zk.Get(ctx, path)
		return string(data), err
	case "ls":
		names, _, err := s.zk.Children(ctx, path)
		slices.Sort(names)
		return "[" + strings.Join(names, " ") + "]", err
	case "stat":
		_, err := s.zk.Exists(ctx, path)
		return "exists", err
	case "watch":
		return "exists", s.watch(ctx, path)
	case "await":
		return s.event(ctx, path)
	}
	return "", fmt.Errorf("%w: there is no command %q", driver.ErrInvalid, name)
}

// watch sets a watch on a node, which exists or not.
func (s *zkSession) watch(ctx context.Context, path string) error {
	s.mu.Lock()
	q := s.events[path]
	if q == nil {
		q = &zkEvents{more: make(chan struct{})}
		s.events[path] = q
	}
	s.mu.Unlock()
	_, _, err := s.zk.ExistsW(ctx, path, func(e zk.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		q.list = append(q.list, e.Type)
		close(q.more)
		q.more = make(chan struct{})
	})
	return err
}

// has reports whether the event has arrived. more is closed when another one arrives.
func (s *zkSession) has(a zkAwait) (event string, more chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.n < len(a.events.list) {
		event = zkEventNames[a.events.list[a.n]]
	}
	return event, a.events.more
}

// event waits for the next event of the watches of a path.
func (s *zkSession) event(ctx context.Context, path string) (string, error) {
	s.mu.Lock()
	q := s.events[path]
	if q == nil {
		s.mu.Unlock()
		return "", fmt.Errorf("%w: no watch was set on %s", driver.ErrInvalid, path)
	}
	a := zkAwait{q, q.taken}
	q.taken++
	s.mu.Unlock()
	s.waits <- a // a client waits for one event at a time
	defer func() { <-s.waits }()
	for {
		event, more := s.has(a)
		if event != "" {
			return event, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

var zkEventNames = map[zk.EventType]string{
	zk.EventCreated: "created", zk.EventDeleted: "deleted", zk.EventDataChanged: "changed",
	zk.EventSessionLost: "session expired",
}

// blocked makes sure that the event which an await waits for has not come. The events of all
// changes before the call have arrived then.
func (s *zkSession) blocked(ctx context.Context) error {
	var a zkAwait
	select {
	case a = <-s.waits:
		s.waits <- a
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := errors.Join(s.zk.Sync(ctx, "/"), s.zk.Flush(ctx)); err != nil {
		return err
	}
	if event, _ := s.has(a); event != "" {
		return fmt.Errorf("the watch has its event: %s", event)
	}
	return nil
}
