package sqllock

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// probeEvery is how soon a waiter notices that a holder was killed; probeNames bounds
// what one look costs.
const (
	probeEvery = 100 * time.Millisecond
	probeNames = 32
)

// probe sees to it that one goroutine looks after the processes that this session waits
// for, while it waits for any.
func (s *session) probe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probing || s.closed {
		return
	}
	s.probing = true
	s.wg.Add(1)
	go s.prober()
}

func (s *session) prober() {
	defer s.wg.Done()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	cursors := map[string]string{}
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		names := s.bells.waiting(probeNames)
		s.probing = len(names) > 0
		s.mu.Unlock()
		if len(names) == 0 {
			return
		}
		seen := map[string]bool{s.id: true}
		for _, name := range names {
			s.look(name, cursors, seen)
		}
		if len(cursors) > 4*probeNames {
			clear(cursors)
		}
	}
}

// look probes those who hold name and the first in its line, who might hold the others
// up for nothing. It also finds a grant whose wake-up was lost.
func (s *session) look(name string, cursors map[string]string, seen map[string]bool) {
	ctx, cancel := context.WithTimeout(s.ctx, probeEvery)
	defer cancel()
	if s.lookAtOwner(ctx, name, seen) {
		return
	}
	at := map[string]*address{}
	err := s.st.snapshot(ctx, func(c *conn, _ int64) error {
		clear(at)
		r, err := readRow(c, name)
		if err != nil || r.kind == driver.Latch {
			return err
		}
		if r.x.session == s.id {
			s.bells.ring(r.x.id, uint64(r.x.token))
		}
		who := []string{r.x.session}
		if r.holders > 0 {
			more, err := s.sharers(c, name, cursors)
			if err != nil {
				return err
			}
			who = append(who, more...)
		}
		if r.waiting > 0 {
			p, err := readHead(c, r)
			if err != nil {
				return err
			}
			if p != nil {
				who = append(who, p.session)
			}
		}
		for _, id := range who {
			if id == "" || seen[id] {
				continue
			}
			seen[id] = true
			var a address
			ok, err := c.get(qSession, []any{id}, &a.bell, &a.file, &a.inode)
			if err != nil {
				return err
			}
			if ok {
				at[id] = &a
			}
		}
		return nil
	})
	if err != nil {
		return // the next look will tell
	}
	for id, a := range at {
		s.st.buryIfDead(ctx, id, a)
	}
}

// lookAtOwner is look for a name with an exclusive grant, in one statement: nothing fits
// beside it, so who is first in line does not matter. It reports whether that was all.
func (s *session) lookAtOwner(ctx context.Context, name string, seen map[string]bool) bool {
	var id, owner string
	var token int64
	var a address
	var ok bool
	err := s.st.r.with(ctx, func() (err error) {
		ok, err = s.st.r.get(qHolderSession, []any{[]byte(name)}, &id, &token, &owner, &a.bell, &a.file, &a.inode)
		return err
	})
	if err != nil || !ok {
		return err != nil
	}
	if owner == s.id {
		s.bells.ring(id, uint64(token))
	}
	if !seen[owner] {
		seen[owner] = true
		s.st.buryIfDead(ctx, owner, &a)
	}
	return true
}

// sharers returns some of the sessions that hold name, others at the next look, so that
// ten thousand of them cost no more than a few.
func (s *session) sharers(c *conn, name string, cursors map[string]string) (ids []string, err error) {
	last := ""
	err = c.each(qHoldSessions, []any{cursors[name], []byte(name)}, func(scan func(...any) error) error {
		err := scan(&last)
		ids = append(ids, last)
		return err
	})
	cursors[name] = last // "" after the last of them: begin again
	return ids, err
}
