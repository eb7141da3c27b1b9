package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

// notification is a wake-up to send after a transaction's commit.
type notification struct {
	session, id string
	token       uint64 // 0: ask again
	to          *address
}

// address is where a session can be reached and checked for life.
type address struct {
	bell, file string
	inode      int64
}

const (
	nameLen   = 2 + 16 // of a socket or session file, without its folder
	maxPacket = 4096
)

// address fills in g's destination, unless it is known.
func (t *tx) address(g *notification) error {
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

// locate returns the path for a name in the table. Names without a folder are next to the file,
// wherever this process sees that (a container may see it elsewhere). It returns "" for a name that
// is not of a socket or session file: this process may be allowed to remove more files than the one
// who wrote the name.
func (st *store) locate(name string) string {
	switch base := filepath.Base(name); {
	case !addressForm.MatchString(base):
		return ""
	case filepath.IsAbs(name):
		return name
	default:
		return filepath.Join(st.path+".run", base)
	}
}

// addressForm is the form of the names that newEndpoint makes.
var addressForm = regexp.MustCompile(`^[bs]-[a-z2-7]{16}$`)

// addressOf is the inverse of locate.
func (st *store) addressOf(path string) string {
	if filepath.Dir(path) == st.path+".run" {
		return filepath.Base(path)
	}
	return path
}

// notify sends notifications after the commit and returns those whose session is unreachable.
func (st *store) notify(notifications []notification) (dead []notification) {
	for i, g := range notifications {
		if g.to == nil || g.to.bell == "" || st.notifyLocal(g) {
			continue
		}
		// One datagram carries all grants of a transaction to one session: a socket may hold as few
		// as ten datagrams.
		if i > 0 && notifications[i-1].session == g.session {
			continue
		}
		if err := st.notifyRemote(notifications[i:], g); errors.Is(err, host.ErrNobody) {
			dead = append(dead, g)
		}
	}
	return dead
}

// notifyRemote sends the leading notifications that go to one session.
func (st *store) notifyRemote(notifications []notification, to notification) error {
	path := st.locate(to.to.bell)
	if path == "" {
		return fmt.Errorf("%w: %q is no address of a session", host.ErrNobody, to.to.bell)
	}
	var msg []byte
	for _, g := range notifications {
		if g.session != to.session {
			break
		}
		if len(msg)+len(g.id)+22 > maxPacket {
			if err := st.notifier.Notify(path, msg); err != nil {
				return err
			}
			msg = msg[:0]
		}
		msg = appendLine(msg, g.id, g.token)
	}
	return st.notifier.Notify(path, msg)
}

func (st *store) notifyLocal(g notification) bool {
	st.mu.Lock()
	s := st.sessions[g.session]
	st.mu.Unlock()
	if s == nil {
		return false
	}
	s.waiters.Notify(g.id, g.token)
	return true
}

// removeWhenDead removes an unreachable session once its file proves it dead: the kernel closes a
// dying process's files one by one.
func (st *store) removeWhenDead(g notification) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for pause := 100 * time.Microsecond; pause < 5*time.Millisecond; pause *= 2 {
		if st.removeIfDead(ctx, g.session, g.to) {
			return
		}
		time.Sleep(pause)
	}
}

// removeIfDead removes a session if its process is dead, and reports whether it was.
func (st *store) removeIfDead(ctx context.Context, session string, at *address) bool {
	life, file := host.Probe(st.locate(at.file), uint64(at.inode))
	if life != host.Dead {
		return false
	}
	err := st.removeSession(ctx, session)
	if err == nil {
		st.removeBell(at.bell)
	}
	file.Close(err == nil)
	return true
}

// removeBatch bounds how long one transaction of removeSession blocks others.
const removeBatch = 256

// removeSession ends a session with all its grants and places, and hands its locks over. It
// respects minimum holds. It reads whole tables to find the session's names, next to concurrent
// writers. From the first transaction on, the session gets nothing in other names. Its row stays
// until the last transaction, so an interrupted removal is resumed.
func (st *store) removeSession(ctx context.Context, session string) error {
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
	for batch := range slices.Chunk(names, removeBatch) {
		_, err := skipDamaged(func(damaged map[string]bool) (at string, err error) {
			err = st.write(ctx, func(t *tx) error {
				for _, name := range batch {
					if damaged[name] {
						continue
					}
					at = name
					if err := t.removeFrom(name, session); err != nil {
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
		if _, err := t.c.exec(qRemoveAwaits, session); err != nil {
			return err
		}
		_, err := t.c.exec(qDropSession, session)
		return err
	})
}

// removeFrom takes a session out of one name before expiries, so that nothing is handed over to it.
func (t *tx) removeFrom(name, session string) error {
	r, err := t.unmoved(name)
	if err != nil {
		return err
	}
	if r.x.session == session && r.x.expires > t.now {
		r.x.expires, r.dirty = t.now, true
	}
	if r.holders > 0 {
		if _, err := t.c.exec(qRemoveHolds, t.now, session, []byte(name), t.now); err != nil {
			return err
		}
	}
	if r.waiting > 0 {
		n, err := t.c.exec(qRemovePlaces, session, []byte(name))
		if err != nil {
			return err
		}
		if n > 0 {
			r.waiting, r.head, r.dirty = r.waiting-int(n), place{}, true
		}
	}
	return t.advance(r)
}
