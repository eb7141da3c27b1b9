package interop

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/interop/internal/remote"
)

// workerEnv makes the test binary a worker. Its value is the library to use.
const workerEnv = "HOLDFAST_INTEROP_WORKER"

// library is a session that can take locks.
type library interface {
	connect(server string, session time.Duration) error
	// take waits for up to d. A nil lease means that it got no lock.
	take(a request, d time.Duration) (lease, error)
	close() error
}

// request is a request for a lock; curator's Taken lists the kinds.
type request struct {
	kind, path     string
	limit, permits int // of a semaphore
}

type lease interface {
	Release() error
	Downgrade() error
	Err() error
}

// forever is longer than any test waits for a lock.
const forever = 2 * time.Minute

// serve is the program of a side in Go, with this library.
func serve(name string) {
	remote.Serve(func(actor string) func(remote.Command) (string, error) {
		if name == "zk" {
			return (&worker{name: actor, lib: &stockLibrary{}}).command
		}
		return (&worker{name: actor, lib: &holdfastLibrary{}}).command
	})
}

// worker is one actor of the protocol.
type worker struct {
	name string
	lib  library
	held lease
}

func (w *worker) command(c remote.Command) (string, error) {
	word := c.Word
	number := func(i int) int { return c.Number(i, 1) }
	switch c[0] {
	case "connect":
		return "ok", w.lib.connect(word(1), time.Duration(number(2))*time.Millisecond)
	case "lock":
		return w.take(request{word(1), word(2), number(3), number(4)}, forever)
	case "try":
		return w.take(request{word(1), word(2), number(4), number(5)}, time.Duration(number(3))*time.Millisecond)
	case "held":
		return "ok", w.held.Err()
	case "unlock":
		l := w.held
		w.held = nil
		return "ok", l.Release()
	case "downgrade":
		return "ok", w.held.Downgrade()
	case "rounds":
		return w.rounds(word(1), word(2), number(3), newWork(word(4), word(5), w.name, number(6)))
	case "close":
		w.held = nil
		return "ok", w.lib.close()
	}
	if h, ok := w.lib.(*holdfastLibrary); ok {
		return w.more(h, c[0], word(1))
	}
	return "", fmt.Errorf("unknown command %q", c)
}

func (w *worker) take(a request, d time.Duration) (string, error) {
	if w.held != nil {
		return "", errors.New("this actor holds a lock")
	}
	l, err := w.lib.take(a, d)
	if err != nil {
		return "", err
	}
	if l == nil {
		return "busy", nil
	}
	w.held = l
	return "ok", nil
}

// rounds does the same as rounds of curator's Actor.
func (w *worker) rounds(kind, path string, n int, work *work) (string, error) {
	for i := range n {
		k := kind
		if kind == "rw" {
			if k = "read"; i%5 == 0 {
				k = "write"
			}
		}
		if path == "-" {
			if err := work.critical(k); err != nil {
				return "", err
			}
			continue
		}
		l, err := w.lib.take(request{k, path, work.limit, 1}, forever)
		if err == nil && l == nil {
			err = fmt.Errorf("no lock within %v", forever)
		}
		if err == nil {
			err = errors.Join(work.critical(k), l.Release())
		}
		if err != nil {
			return "", fmt.Errorf("round %d: %w", i, err)
		}
	}
	return "ok " + work.report(), nil
}
