package redisson

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/interop/internal/remote"
)

// workerEnv makes the test binary a worker with holdfast.
const workerEnv = "HOLDFAST_INTEROP_REDISSON"

func workerCommand(testing.TB) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	return cmd
}

// forever is longer than any test waits for a lock.
const forever = 2 * time.Minute

// worker is one actor of the protocol.
type worker struct {
	name string
	lib  *library
	held []held // the latest is the last
}

// command does the same as run of the Java program's Actor.
func (w *worker) command(c remote.Command) (string, error) {
	word, number := c.Word, c.Number
	millis := func(i int) time.Duration { return time.Duration(number(i, 0)) * time.Millisecond }
	switch c[0] {
	case "connect":
		w.lib = libraryOf(word(1), millis(2))
		return "ok", nil
	case "lock":
		return w.take(word(1), word(2), forever, number(4, 1))
	case "try":
		return w.take(word(1), word(2), millis(3), number(5, 1))
	case "unlock":
		l := w.held[len(w.held)-1]
		w.held = w.held[:len(w.held)-1]
		return "ok", l.Release()
	case "held":
		return "ok", w.held[len(w.held)-1].Err()
	case "downgrade":
		return "ok", w.held[len(w.held)-1].(*holdfast.Lease).Downgrade()
	case "rounds":
		return w.rounds(word(1), word(2), number(3, 1), word(4), word(5), number(6, 0))
	case "enter":
		work, err := newWork(word(2), word(3), w.name)
		if err != nil {
			return "", err
		}
		defer work.close()
		err = work.critical(word(1), "")
		return "ok " + work.report(), err
	case "close":
		w.held = nil
		return "ok", nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), forever)
	defer cancel()
	return w.lib.command(ctx, c[0], word, number)
}

func (w *worker) take(kind, name string, d time.Duration, n int) (string, error) {
	l, err := w.lib.take(kind, name, d, n)
	if err != nil {
		return "", err
	}
	if l == nil {
		return "busy", nil
	}
	w.held = append(w.held, l)
	return "ok " + token(l), nil
}

// rounds does the same as rounds of the Java program's Actor.
func (w *worker) rounds(kind, name string, n int, judge, key string, impatience int) (string, error) {
	work, err := newWork(judge, key, w.name)
	if err != nil {
		return "", err
	}
	defer work.close()
	for i := range n {
		k := kind
		if kind == "rw" {
			if k = "read"; i%5 == 0 {
				k = "write"
			}
		}
		wait := forever
		if impatience > 0 {
			wait = time.Duration(rand.IntN(impatience)) * time.Millisecond
		}
		l, err := w.lib.take(k, name, wait, 1)
		if err == nil && l == nil && impatience > 0 {
			continue
		}
		if err == nil && l == nil {
			err = fmt.Errorf("no lock within %v", forever)
		}
		if err == nil {
			err = errors.Join(work.critical(k, token(l)), l.Release())
		}
		if err != nil {
			return "", fmt.Errorf("round %d: %w", i, err)
		}
	}
	return "ok " + work.report(), nil
}
