package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-lock/holdfast/driver"
)

// spy records a client's requests: what a stranger with read access knows.
type spy struct {
	driver.Backend

	mu      sync.Mutex
	session string
	last    map[string]asked // by name
}

type asked struct {
	id             string // of the last request
	times, answers int
}

func (s *spy) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	n, err := s.Backend.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = cfg.ID // of a client whose session survives the check
	return &spied{n, s}, nil
}

// opened returns the ID of the session that was opened last.
func (s *spy) opened() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

func (s *spy) recordRequest(name, id string) (answered func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.last[name]
	a.id = id
	a.times++
	s.last[name] = a
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		a := s.last[name]
		a.answers++
		s.last[name] = a
	}
}

func (s *spy) of(name string) asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[name]
}

func (s *spy) id(name string) string   { return s.of(name).id }
func (s *spy) count(name string) int   { return s.of(name).times }
func (s *spy) answers(name string) int { return s.of(name).answers }

type spied struct {
	driver.Session
	s *spy
}

func (n *spied) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	answered := n.s.recordRequest(r.Name, r.ID)
	defer answered()
	return n.Session.Acquire(ctx, r)
}

func (n *spied) Await(ctx context.Context, name, id string) (driver.Reply, error) {
	answered := n.s.recordRequest(name, id)
	defer answered()
	return n.Session.Await(ctx, name, id)
}

// goroutines counts those that the check has started, directly or not.
func (e *env) goroutines() (n int) {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // a buffer accepts all
	for block := range strings.SplitSeq(b.String(), "\n\n") {
		// or is Faulty's
		if !strings.Contains(block, strconv.Quote(e.prefix)) || strings.Contains(block, "(*faultySession)") {
			continue
		}
		for line := range strings.Lines(block) { // "3 @ 0x4", the first line after the head of the profile
			var k int
			if _, err := fmt.Sscanf(line, "%d @", &k); err == nil {
				n += k
				break
			}
		}
	}
	return n
}

// leavesNothing returns a function that checks that no goroutine has stayed since.
func (e *env) leavesNothing() (check func()) {
	const more = 64 // for connections that were opened meanwhile, each with a few
	before := e.goroutines()
	return func() {
		e.Helper()
		if before == 0 {
			e.Error("drivertest: no goroutine of the check was counted")
		}
		if !e.Failed() {
			e.until("no goroutine stays", func() bool { return e.goroutines() <= before+more })
		}
	}
}
