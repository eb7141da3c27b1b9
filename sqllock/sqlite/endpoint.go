package sqlite

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

func (s *session) Close(ctx context.Context) error {
	if !s.end() {
		return nil
	}
	err := s.st.removeSession(ctx, s.id)
	s.st.forget(s.id)
	err = errors.Join(err, s.endpoint.close())
	s.wg.Wait()
	s.b.forget(s)
	return err
}

// end makes all further calls fail, and reports whether it was the first call.
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

// endpoint is what other processes see of a session: a file that it keeps locked, and a socket that
// it listens to.
type endpoint struct {
	filePath, bellPath string
	presence           *host.Presence
	bell               *host.Bell
}

func (st *store) newEndpoint() (*endpoint, error) {
	dir, err := st.folder()
	if err != nil {
		return nil, err
	}
	key := strings.ToLower(rand.Text()[:nameLen-2])
	b := &endpoint{filePath: filepath.Join(dir, "s-"+key), bellPath: filepath.Join(dir, "b-"+key)}
	// Create the file first: a dying process's descriptors are closed in order. So when the socket
	// is dead, the file is unlocked, unless a child has it.
	if b.presence, err = host.Announce(b.filePath); err != nil {
		return nil, err
	}
	if b.bell, err = host.Listen(b.bellPath); err != nil {
		return nil, errors.Join(err, b.presence.Close())
	}
	return b, nil
}

// presence returns a duplicate of the session's file, or nil if there is none.
func (s *session) presence() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil
	}
	f, err := s.endpoint.presence.Duplicate()
	s.given = s.given || f != nil
	return f, err
}

// inodeOf returns what the record of a session has as the inode of its file. With -1 no probe proves
// the process dead: its locks last until their leases end. A child that was given the file of this
// session does not have a later one.
func (s *session) inodeOf(b *endpoint) int64 {
	if s.b.keepLeases.Load() || s.given {
		return -1
	}
	return int64(b.presence.Inode())
}

func (b *endpoint) close() error { return errors.Join(b.bell.Close(), b.presence.Close()) }

func (st *store) removeBell(name string) {
	if name != "" {
		os.Remove(st.locate(name))
	}
}

// listen starts the goroutine that reads the socket until it is closed.
func (s *session) listen(b *endpoint) {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		buf := make([]byte, maxPacket)
		for {
			n, err := b.bell.Read(buf)
			if err != nil {
				return
			}
			parseDatagram(buf[:n], s.received)
		}
	}()
}

// received handles a line of a datagram. A token a day ahead of the clock is forged or comes from a
// wrong clock, so the waiter only asks again.
func (s *session) received(id string, token uint64) {
	if token > uint64(max(s.st.env.wall(), 0)+(24*time.Hour).Microseconds()) {
		token = 0
	}
	s.waiters.Notify(id, token)
}

// repair creates a new endpoint if the files of the old one were removed, as cleaners of temporary
// folders do. Until then the session is safe, only slower to reach: a missing file does not prove a
// process dead.
func (s *session) repair(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.endpoint
	if s.closed || old.presence.Intact() && old.bell.Intact() {
		return nil
	}
	fresh, err := s.st.newEndpoint()
	if err != nil {
		return fault(err)
	}
	var n int64
	err = s.st.write(ctx, func(t *tx) (err error) {
		n, err = t.c.exec(qMoveSession, s.st.addressOf(fresh.bellPath), s.st.addressOf(fresh.filePath),
			s.inodeOf(fresh), s.id)
		return err
	})
	if err != nil || n == 0 {
		return errors.Join(err, fresh.close())
	}
	s.endpoint = fresh
	s.listen(fresh)
	return old.close()
}
