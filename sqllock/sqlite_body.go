package sqllock

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

// Close implements [driver.Session].
func (s *session) Close(ctx context.Context) error {
	if !s.end() {
		return nil
	}
	err := s.st.bury(ctx, s.id)
	s.st.forget(s.id)
	err = errors.Join(err, s.body.close())
	s.wg.Wait()
	s.b.forget(s)
	return err
}

// end makes every further call fail, and reports whether it was the first to do so.
func (s *session) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.closed = true
	s.stop()
	return true
}

func (st *store) forget(session string) {
	st.mu.Lock()
	delete(st.sessions, session)
	st.mu.Unlock()
}

// body is what other processes know a session by: a file that it keeps locked, and a
// socket that it listens to.
type body struct {
	filePath, bellPath string
	presence           *host.Presence
	bell               *host.Bell
}

func (st *store) newBody() (*body, error) {
	dir, err := st.folder()
	if err != nil {
		return nil, err
	}
	key := strings.ToLower(rand.Text()[:nameLen-2])
	b := &body{filePath: filepath.Join(dir, "s-"+key), bellPath: filepath.Join(dir, "b-"+key)}
	// The file comes first: when a process dies its descriptors are closed in order, so
	// whoever finds the bell dead finds the file unlocked.
	if b.presence, err = host.Announce(b.filePath); err != nil {
		return nil, err
	}
	if b.bell, err = host.Listen(b.bellPath); err != nil {
		return nil, errors.Join(err, b.presence.Close())
	}
	return b, nil
}

func (b *body) close() error { return errors.Join(b.bell.Close(), b.presence.Close()) }

func (st *store) removeBell(name string) {
	if name != "" {
		os.Remove(st.locate(name))
	}
}

// listen starts the goroutine that hears the bell, until that is closed.
func (s *session) listen(b *body) {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		buf := make([]byte, maxPacket)
		for {
			n, err := b.bell.Read(buf)
			if err != nil {
				return
			}
			parseDatagram(buf[:n], s.heard)
		}
	}()
}

// heard takes what a datagram says of a request. A token that is a day ahead of the clock was made by no process whose
// clock is right: the waiter asks what there is to it.
func (s *session) heard(id string, token uint64) {
	if token > uint64(max(s.st.env.wall(), 0)+(24*time.Hour).Microseconds()) {
		token = 0
	}
	s.bells.ring(id, token)
}

// repair makes a new body if somebody removed the files of the old one, as cleaners of
// temporary folders do. Until then the session is safe, only slower to reach: a file that
// is missing proves nobody dead.
func (s *session) repair(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.body
	if s.closed || old.presence.Intact() && old.bell.Intact() {
		return nil
	}
	fresh, err := s.st.newBody()
	if err != nil {
		return fault(err)
	}
	var n int64
	err = s.st.write(ctx, func(t *tx) (err error) {
		n, err = t.c.exec(qMoveSession, s.st.addressOf(fresh.bellPath), s.st.addressOf(fresh.filePath),
			int64(fresh.presence.Inode()), s.id)
		return err
	})
	if err != nil || n == 0 {
		return errors.Join(err, fresh.close())
	}
	s.body = fresh
	s.listen(fresh)
	return old.close()
}
