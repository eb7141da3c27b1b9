package verify

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/relay"
)

// workerRelay is between the workers and the store's servers. A worker connects to it and sends one
// line with its process, its target, and the relay's key:
//
//	p3.2 tcp 127.0.0.1:6379 KEY
//
// Then the relay passes bytes on as they are, TLS included. Only the coordinator and its workers
// know the key. Without it any user of this machine could reach servers that only the user of
// verify can reach.
type workerRelay struct {
	*relay.Relay
	key string

	mu   sync.Mutex
	seen []string // requested addresses, sorted
}

// headLimit bounds how long a worker may take to send its first line.
const headLimit = 10 * time.Second

func newWorkerRelay(key string) (*workerRelay, error) {
	r := &workerRelay{key: key}
	var err error
	if r.Relay, err = relay.New(r.head); err != nil {
		return nil, err
	}
	return r, nil
}

// addresses returns the server addresses that workers have requested, sorted.
func (r *workerRelay) addresses() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// forward listens for the connections of one worker to one server, which send no first line.
func (r *workerRelay) forward(ends relay.Ends) (addr string, stop func(), err error) {
	if addr, stop, err = r.Forward(ends); err == nil {
		r.note(ends.Server)
	}
	return addr, stop, err
}

func (r *workerRelay) note(server string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, known := slices.BinarySearch(r.seen, server); !known {
		r.seen = slices.Insert(r.seen, i, server)
	}
}

var errHead = errors.New("invalid first line of the connection")

// head reads the first line.
func (r *workerRelay) head(c net.Conn, in *bufio.Reader) (to relay.Ends, err error) {
	_ = c.SetReadDeadline(time.Now().Add(headLimit))
	line, err := in.ReadSlice('\n')
	if err != nil {
		return to, err
	}
	words := strings.Split(strings.TrimSuffix(string(line), "\n"), " ")
	if len(words) != 4 || words[3] != r.key || words[0] == "" ||
		!slices.Contains([]string{"tcp", "tcp4", "tcp6", "unix"}, words[1]) {
		return to, fmt.Errorf("%w: %d words", errHead, len(words))
	}
	_ = c.SetReadDeadline(time.Time{})
	to = relay.Ends{Client: words[0], Network: words[1], Server: words[2]}
	r.note(to.Server)
	return to, nil
}
