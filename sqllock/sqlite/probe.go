package sqlite

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// probeEvery is how soon the first waiter notices that a holder was killed. The others check at
// every fifth tick, so that many waiters of one name do not keep the machine busy. They matter only
// if the first waiter died too. probeNames bounds the cost of one check.
const (
	probeEvery  = 100 * time.Millisecond
	probeSeldom = 5
	probeNames  = 32
)

// view is the result of the prober's last look at the table. While nobody has written since, the
// same sessions block this one, and only their processes need a check.
type view struct {
	names  []string
	wal    os.FileInfo // the write-ahead log before the look
	at     time.Time
	stable bool // a write after the look shows in wal, and owners is complete
	behind bool // other waiters are ahead of this session in every queue
	owners map[string]*address
}

// fresh reports whether v is valid: nothing was written since, and v is younger than a second.
func (st *store) fresh(v *view, names []string) (wal os.FileInfo, ok bool) {
	wal, err := os.Stat(st.path + "-wal")
	if err != nil {
		return nil, false
	}
	return wal, v.stable && time.Since(v.at) < time.Second && wal.Size() == v.wal.Size() &&
		wal.ModTime().Equal(v.wal.ModTime()) && slices.Equal(names, v.names)
}

// probe starts a goroutine, while this session waits, that checks the processes blocking it.
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
	var v view
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		if v.behind && n%probeSeldom != 0 {
			continue
		}
		s.mu.Lock()
		names := s.waiters.Names(probeNames)
		s.probing = len(names) > 0
		s.mu.Unlock()
		if len(names) == 0 {
			return
		}
		slices.Sort(names)
		wal, ok := s.st.fresh(&v, names)
		if ok {
			for id, a := range v.owners {
				s.st.removeIfDead(s.ctx, id, a)
			}
			continue
		}
		// File times are coarse: only a write after a long pause is sure to change them.
		v = view{names: names, wal: wal, at: time.Now(), owners: map[string]*address{}, behind: true}
		v.stable = wal != nil && len(names) < probeNames && v.at.Sub(wal.ModTime()) > probeEvery
		for _, name := range names {
			stable, first := s.look(name, cursors, v.owners)
			v.stable, v.behind = v.stable && stable, v.behind && !first
		}
		if len(cursors) > 4*probeNames {
			clear(cursors)
		}
	}
}

// look checks the holders of name and the first waiter, which may be dead. It also finds a grant
// whose notification was lost. stable: exactly one owner blocks the name. first: no other waiter is
// known to be first.
func (s *session) look(name string, cursors map[string]string, seen map[string]*address) (stable, first bool) {
	ctx, cancel := context.WithTimeout(s.ctx, probeEvery)
	defer cancel()
	if ok, first, err := s.lookAtOwner(ctx, name, seen); ok || err != nil {
		return ok, first
	}
	at := map[string]*address{}
	err := s.st.snapshot(ctx, func(c *conn, _ int64) error {
		clear(at)
		r, err := readRow(c, name)
		if err != nil || r.kind == driver.Latch {
			return err
		}
		if r.x.session == s.id {
			s.waiters.Notify(r.x.id, uint64(r.x.token))
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
			if id == "" || id == s.id || seen[id] != nil {
				continue
			}
			var a address
			ok, err := c.get(qSession, []any{id}, &a.bell, &a.file, &a.inode)
			if err != nil {
				return err
			}
			if ok {
				at[id], seen[id] = &a, &a
			}
		}
		return nil
	})
	if err == nil { // otherwise the next look continues
		for id, a := range at {
			s.st.removeIfDead(ctx, id, a)
		}
	}
	return false, true
}

// lookAtOwner is look for a name with an exclusive grant, in one statement. Nothing fits next to
// that grant, so the first waiter's life does not matter. ok: it is such a name. first: no other
// waiter is first.
func (s *session) lookAtOwner(ctx context.Context, name string, seen map[string]*address) (ok, first bool, err error) {
	var id, owner, head string
	var token int64
	var a address
	err = s.st.read(ctx, func() (err error) {
		ok, err = s.st.r.get(qHolderSession, []any{[]byte(name)}, &id, &token, &owner, &a.bell, &a.file, &a.inode, &head)
		return err
	})
	if err != nil || !ok {
		return false, true, err
	}
	if owner == s.id {
		s.waiters.Notify(id, uint64(token))
	} else if seen[owner] == nil {
		seen[owner] = &a
		s.st.removeIfDead(ctx, owner, &a)
	}
	return true, head == "" || head == s.id, nil
}

// sharers returns some sessions that hold name, and others at the next look, so that ten thousand
// cost no more than a few.
func (s *session) sharers(c *conn, name string, cursors map[string]string) (ids []string, err error) {
	last := ""
	err = c.each(qHoldSessions, []any{cursors[name], []byte(name)}, func(scan func(...any) error) error {
		err := scan(&last)
		ids = append(ids, last)
		return err
	})
	cursors[name] = last // "" after the last of them: start again
	return ids, err
}
