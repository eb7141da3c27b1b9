package quorum

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// account is the locked resource.
type account struct {
	seed   uint64
	mu     sync.Mutex
	wrong  []string
	inside int
	world  *world
	all    []*session
	looked string
	last   uint64
	ends   time.Time // when the servers end the last lease, at the latest
	keeps  time.Time // when the last minimum hold ends, at the earliest; see contend
	n      int
}

func (y *account) fail(format string, args ...any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.wrong = append(y.wrong, fmt.Sprintf(format, args...))
}

// look keeps the state when a client waits for long, to report it.
func (y *account) look() {
	var text strings.Builder
	y.world.mu.Lock()
	for i, v := range y.world.servers {
		fmt.Fprintf(&text, "server %d: held by %s under %d until %v; queue %v\n", i, v.holder.id, v.token, time.Until(v.end),
			v.queue)
	}
	y.world.mu.Unlock()
	for _, s := range y.all {
		text.WriteString(s.describe())
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.looked == "" {
		y.looked = text.String()
	}
}

// seen returns what look has kept.
func (y *account) seen() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.looked
}

// enter is called with the token of a grant that took so many.
func (y *account) enter(token uint64, block int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.inside++; y.inside > 1 {
		y.wrong = append(y.wrong, fmt.Sprint(y.inside, " inside"))
	}
	if token < y.last+uint64(block) {
		y.wrong = append(y.wrong, fmt.Sprintf("token %d, of a block of %d, after %d", token, block, y.last))
	}
	y.last = max(y.last, token)
	y.n++
}

func (y *account) leave() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.inside--
}

// delay is how much earlier than their clients the servers may know of a grant. Pushes that get lost are made up
// for by the next renewal.
func (m model) delay() time.Duration {
	if m.lose > 0 || m.linger > 0 {
		return modelTTL / 3
	}
	return 50 * time.Millisecond
}

// keep records that the minimum hold of a new grant ends then, at the earliest.
func (y *account) keep(until time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.keeps = until
}

// waited returns how long a client has waited since begin, and since the last minimum hold. That must be over.
func (y *account) waited(begin time.Time) time.Duration {
	y.mu.Lock()
	defer y.mu.Unlock()
	if left := time.Until(y.keeps); left > 0 {
		y.wrong = append(y.wrong, fmt.Sprintf("granted %v before a minimum hold was over", left))
	}
	if begin.Before(y.keeps) {
		begin = y.keeps
	}
	return time.Since(begin)
}
