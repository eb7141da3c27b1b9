package interop

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
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

// serve is the protocol of curator's Main on standard input and output.
func serve(name string) {
	actors := map[string]chan []string{}
	var out sync.Mutex
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if words[1] == "halt" {
			break
		}
		commands := actors[words[0]]
		if commands == nil {
			commands = make(chan []string, 8)
			actors[words[0]] = commands
			w := &worker{name: words[0], lib: &holdfastLibrary{}}
			if name == "zk" {
				w.lib = &stockLibrary{}
			}
			go func() {
				for c := range commands {
					reply := w.run(c)
					out.Lock()
					fmt.Println(w.name, strings.ReplaceAll(reply, "\n", " "))
					out.Unlock()
				}
			}()
		}
		commands <- words[1:]
	}
	os.Exit(0) // its locks stay taken until its sessions have expired
}

// worker is one actor of the protocol.
type worker struct {
	name string
	lib  library
	held lease
}

func (w *worker) run(c []string) string {
	reply, err := w.command(c)
	switch {
	case errors.Is(err, holdfast.ErrLost):
		return "lost " + err.Error()
	case err != nil:
		return "error " + err.Error()
	}
	return reply
}

func (w *worker) command(c []string) (string, error) {
	word := func(i int) string {
		if i < len(c) {
			return c[i]
		}
		return ""
	}
	number := func(i int) int {
		n, err := strconv.Atoi(word(i))
		if err != nil {
			return 1
		}
		return n
	}
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
