package sqllock

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

// ring is a wake-up that a transaction owes once it is committed.
type ring struct {
	session, id string
	token       uint64 // 0: ask again
	to          *address
}

// address is where a session can be reached and watched.
type address struct {
	bell, file string
	inode      int64
}

const (
	nameLen   = 2 + 16 // of a bell or session file, without its folder
	maxPacket = 4096
)

// address fills in where g goes to, unless that is known.
func (t *tx) address(g *ring) error {
	if g.to != nil {
		return nil
	}
	a := &address{}
	ok, err := t.c.get(qSession, []any{g.session}, &a.bell, &a.file, &a.inode)
	if ok {
		g.to = a
	}
	return err
}

// locate makes a name in the table a path. Names without a folder are beside the file,
// wherever this process sees it (in a container it may be elsewhere).
func (st *store) locate(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(st.path+".run", name)
}

// addressOf is the inverse of locate.
func (st *store) addressOf(path string) string {
	if filepath.Dir(path) == st.path+".run" {
		return filepath.Base(path)
	}
	return path
}

// ring delivers rings after the commit and returns those whose session cannot be reached.
func (st *store) ring(rings []ring) (dead []ring) {
	for i, g := range rings {
		if g.to == nil || g.to.bell == "" || st.ringLocal(g) {
			continue
		}
		// Grants that one transaction hands to one session travel together: a socket
		// holds as few as ten datagrams.
		if i > 0 && rings[i-1].session == g.session {
			continue
		}
		if err := st.ringRemote(rings[i:], g); errors.Is(err, host.ErrNobody) {
			dead = append(dead, g)
		}
	}
	return dead
}

// ringRemote sends the first of rings that go to one session.
func (st *store) ringRemote(rings []ring, to ring) error {
	path := st.locate(to.to.bell)
	var msg []byte
	for _, g := range rings {
		if g.session != to.session {
			break
		}
		if len(msg)+len(g.id)+22 > maxPacket {
			if err := st.ringer.Ring(path, msg); err != nil {
				return err
			}
			msg = msg[:0]
		}
		msg = appendLine(msg, g.id, g.token)
	}
	return st.ringer.Ring(path, msg)
}

func (st *store) ringLocal(g ring) bool {
	st.mu.Lock()
	s := st.sessions[g.session]
	st.mu.Unlock()
	if s == nil {
		return false
	}
	s.bells.ring(g.id, g.token)
	return true
}

// coroner buries a session whose bell nobody hears, once its file proves it dead: the
// kernel takes a dying process's files away one by one.
func (st *store) coroner(g ring) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for pause := 100 * time.Microsecond; pause < 5*time.Millisecond; pause *= 2 {
		if st.buryIfDead(ctx, g.session, g.to) {
			return
		}
		time.Sleep(pause)
	}
}

// buryIfDead probes a session and buries it if it is dead. It reports whether it was.
func (st *store) buryIfDead(ctx context.Context, session string, at *address) bool {
	life, grave := host.Probe(st.locate(at.file), uint64(at.inode))
	if life != host.Dead {
		return false
	}
	err := st.bury(ctx, session)
	if err == nil {
		st.removeBell(at.bell)
	}
	grave.Close(err == nil)
	return true
}

// buryBatch bounds how long one transaction of bury keeps others from the file.
const buryBatch = 256

// bury ends a session with everything it holds and waits for, and passes on what it held.
// Minimum holds are kept. Where the session is to be found takes reading the tables through,
// so that is done beside the writers: from the first transaction on the session gets nothing
// in any other name, and its row stays until the last, so that a burial cut short is resumed.
func (st *store) bury(ctx context.Context, session string) error {
	err := st.write(ctx, func(t *tx) error {
		_, err := t.c.exec(qEndSession, session)
		return err
	})
	if err != nil {
		return err
	}
	var names []string
	err = st.snapshot(ctx, func(c *conn, _ int64) error {
		names = names[:0]
		return c.each(qSessionNames, []any{session}, func(scan func(...any) error) error {
			var b []byte
			err := scan(&b)
			names = append(names, string(b))
			return err
		})
	})
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(names, buryBatch) {
		_, err := spare(func(damaged map[string]bool) (at string, err error) {
			err = st.write(ctx, func(t *tx) error {
				for _, name := range batch {
					if damaged[name] {
						continue
					}
					at = name
					if err := t.buryIn(name, session); err != nil {
						return err
					}
				}
				return nil
			})
			return at, err
		})
		if err != nil {
			return err
		}
	}
	return st.write(ctx, func(t *tx) error {
		if _, err := t.c.exec(qBuryAwaits, session); err != nil {
			return err
		}
		_, err := t.c.exec(qDropSession, session)
		return err
	})
}

// buryIn takes a session out of one name. It does so before time passes there, so that
// nothing is handed to the dead.
func (t *tx) buryIn(name, session string) error {
	r, err := t.unmoved(name)
	if err != nil {
		return err
	}
	if r.x.session == session && r.x.expires > t.now {
		r.x.expires, r.dirty = t.now, true
	}
	if r.holders > 0 {
		if _, err := t.c.exec(qBuryHolds, t.now, session, []byte(name), t.now); err != nil {
			return err
		}
	}
	if r.waiting > 0 {
		n, err := t.c.exec(qBuryPlaces, session, []byte(name))
		if err != nil {
			return err
		}
		if n > 0 {
			r.waiting, r.head, r.dirty = r.waiting-int(n), place{}, true
		}
	}
	return t.advance(r)
}
