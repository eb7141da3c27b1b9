package sqllock

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// probeEvery is how soon the first in line notices that a holder was killed. Those behind,
// who matter only if the first died as well, look at every fifth tick: many that wait for
// one name would else keep the machine busy. probeNames bounds what one look costs.
const (
	probeEvery  = 100 * time.Millisecond
	probeSeldom = 5
	probeNames  = 32
)

// view is what the prober's last look at the table found. While nobody has written since,
// those in the way are the same, and only whether they live has to be found out again.
type view struct {
	names   []string
	wal     os.FileInfo // the log of writes before the look
	at      time.Time
	settled bool // a write after the look shows in wal, and the owners are all
	behind  bool // others stand before this session in every line
	owners  map[string]*address
}

// fresh looks at what has been written since v. A second is as long as it is believed.
func (st *store) fresh(v *view, names []string) (wal os.FileInfo, ok bool) {
	wal, err := os.Stat(st.path + "-wal")
	if err != nil {
		return nil, false
	}
	return wal, v.settled && time.Since(v.at) < time.Second && wal.Size() == v.wal.Size() &&
		wal.ModTime().Equal(v.wal.ModTime()) && slices.Equal(names, v.names)
}

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
		names := s.bells.waiting(probeNames)
		s.probing = len(names) > 0
		s.mu.Unlock()
		if len(names) == 0 {
			return
		}
		slices.Sort(names)
		wal, ok := s.st.fresh(&v, names)
		if ok {
			for id, a := range v.owners {
				s.st.buryIfDead(s.ctx, id, a)
			}
			continue
		}
		// Times of files are only so fine: what was written long ago is not written again
		// with the same time.
		v = view{names: names, wal: wal, at: time.Now(), owners: map[string]*address{}, behind: true}
		v.settled = wal != nil && len(names) < probeNames && v.at.Sub(wal.ModTime()) > probeEvery
		for _, name := range names {
			settled, first := s.look(name, cursors, v.owners)
			v.settled, v.behind = v.settled && settled, v.behind && !first
		}
		if len(cursors) > 4*probeNames {
			clear(cursors)
		}
	}
}

// look probes those who hold name and the first in its line, who might hold the others
// up for nothing. It also finds a grant whose wake-up was lost. It reports whether one owner
// is all that is in the way, and whether nobody else is known to be first in line.
func (s *session) look(name string, cursors map[string]string, seen map[string]*address) (settled, first bool) {
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
	if err == nil { // else the next look will tell
		for id, a := range at {
			s.st.buryIfDead(ctx, id, a)
		}
	}
	return false, true
}

// lookAtOwner is look for a name with an exclusive grant, in one statement: nothing fits
// beside it, so whether the first in line lives does not matter. ok says that it is such a
// name, first that nobody else is first in line.
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
		s.bells.ring(id, uint64(token))
	} else if seen[owner] == nil {
		seen[owner] = &a
		s.st.buryIfDead(ctx, owner, &a)
	}
	return true, head == "" || head == s.id, nil
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
