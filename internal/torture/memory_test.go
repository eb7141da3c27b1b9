package torture

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

// ttl is short, so that many leases run out in a minute.
const ttl = 500 * time.Millisecond

// TestMemory is the same for the store in memory, where goroutines with a network of their own
// stand for processes, and time is virtual.
func TestMemory(t *testing.T) {
	const crewSize, due = 4, 2000
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		store := memlock.New()
		res := &cell{}
		crew := make([]*life, crewSize)
		for i := range crew {
			crew[i] = begin(t, store, res, due, &life{}, rng.Uint64())
		}
		kills, cuts := 0, 0
		for running := true; running; {
			time.Sleep(time.Duration(20+rng.IntN(200)) * time.Millisecond)
			switch i := rng.IntN(crewSize); {
			case rng.IntN(4) > 1 || crew[i].finished(due):
			case rng.IntN(2) == 0:
				crew[i].kill()
				crew[i] = begin(t, store, res, due, crew[i], rng.Uint64())
				kills++
			default:
				heal := crew[i].conn.Cut()
				time.Sleep(ttl + time.Duration(rng.IntN(int(ttl))))
				heal()
				cuts++
			}
			running = false
			for _, l := range crew {
				running = running || !l.finished(due)
			}
		}
		for _, l := range crew {
			l.kill()
		}
		res.mu.Lock()
		defer res.mu.Unlock()
		t.Logf("%d grants, %d kills, %d cuts; accepted %d writes, refused %d", len(res.tokens), kills, cuts, res.accepted, res.refused)
		if res.value != res.accepted || res.value < crewSize*due {
			t.Errorf("the count is %d after %d accepted writes of at least %d", res.value, res.accepted, crewSize*due)
		}
		if kills < 20 || cuts < 20 || res.refused == 0 {
			t.Errorf("%d kills, %d cuts, %d refused writes: the run proves nothing", kills, cuts, res.refused)
		}
	})
}

// cell is a number behind a fence: the highest token is raised at the first contact.
type cell struct {
	mu                                sync.Mutex
	highest, value, accepted, refused uint64
	tokens                            map[uint64]bool
}

func (c *cell) read(t *testing.T, token uint64) (value uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens[token] {
		t.Errorf("token %d was granted twice", token)
	}
	if c.tokens == nil {
		c.tokens = map[uint64]bool{}
	}
	c.tokens[token] = true
	if token < c.highest {
		c.refused++
		return 0, false
	}
	c.highest = token
	return c.value, true
}

func (c *cell) write(token, value uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if token < c.highest {
		c.refused++
		return false
	}
	c.value = value
	c.accepted++
	return true
}

// life is a process, until it is killed. Its successor takes over how far it had come.
type life struct {
	conn drivertest.Conn
	end  context.CancelFunc
	over chan struct{} // closed when it has ended
	mu   sync.Mutex
	done int
}

func (l *life) finished(due int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done >= due
}

func (l *life) kill() {
	l.conn.Kill()
	l.end()
	<-l.over
}

func begin(t *testing.T, store *memlock.Store, res *cell, due int, before *life, seed uint64) *life {
	ctx, end := context.WithCancel(t.Context())
	l := &life{conn: drivertest.Faulty(store), end: end, over: make(chan struct{}), done: before.done}
	c, err := holdfast.New(ctx, l.conn, &holdfast.Config{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	go func() {
		defer close(l.over)
		defer func() {
			closing, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_ = c.Close(closing) // a killed process says nothing
		}()
		for !l.finished(due) && ctx.Err() == nil {
			lease, err := c.Mutex("x").Lock(ctx)
			if err != nil {
				continue // cut off
			}
			value, ok := res.read(t, lease.Token())
			if rng.IntN(100) == 0 {
				time.Sleep(time.Duration(rng.IntN(int(2 * ttl)))) // deaf to what its lease says
			} else {
				time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
			}
			if ok && ctx.Err() == nil && res.write(lease.Token(), value+1) {
				l.mu.Lock()
				l.done++
				l.mu.Unlock()
			}
			_ = lease.Release() // its loss is what this is about
		}
	}()
	return l
}
