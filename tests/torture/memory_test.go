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

// ttl is short, so that many leases expire in a minute.
const ttl = 500 * time.Millisecond

// TestMemory is the same for the store in memory. Goroutines with a network of their own represent
// processes, and time is virtual.
func TestMemory(t *testing.T) {
	const processCount, due = 4, 2000
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		store := memlock.New()
		res := &cell{}
		processes := make([]*process, processCount)
		for i := range processes {
			processes[i] = begin(t, store, res, due, &process{}, rng.Uint64())
		}
		kills, cuts := 0, 0
		for running := true; running; {
			time.Sleep(time.Duration(20+rng.IntN(200)) * time.Millisecond)
			switch i := rng.IntN(processCount); {
			case rng.IntN(4) > 1 || processes[i].finished(due):
			case rng.IntN(2) == 0:
				processes[i].kill()
				processes[i] = begin(t, store, res, due, processes[i], rng.Uint64())
				kills++
			default:
				heal := processes[i].conn.Cut()
				time.Sleep(ttl + time.Duration(rng.IntN(int(ttl))))
				heal()
				cuts++
			}
			running = false
			for _, l := range processes {
				running = running || !l.finished(due)
			}
		}
		for _, l := range processes {
			l.kill()
		}
		res.mu.Lock()
		defer res.mu.Unlock()
		t.Logf("%d grants, %d kills, %d cuts; accepted %d writes, refused %d", len(res.tokens), kills, cuts, res.accepted,
			res.refused)
		if res.value != res.accepted || res.value < processCount*due {
			t.Errorf("the count is %d after %d accepted writes of at least %d", res.value, res.accepted, processCount*due)
		}
		if kills < 20 || cuts < 20 || res.refused == 0 {
			t.Errorf("%d kills, %d cuts, %d refused writes: the run proves nothing", kills, cuts, res.refused)
		}
	})
}

// cell is a fenced number: the first contact raises the highest token.
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

// process is a simulated process, until it is killed. Its successor continues its count.
type process struct {
	conn drivertest.Conn
	end  context.CancelFunc
	over chan struct{} // closed when it has ended
	mu   sync.Mutex
	done int
}

func (l *process) finished(due int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done >= due
}

func (l *process) kill() {
	l.conn.Kill()
	l.end()
	<-l.over
}

func begin(t *testing.T, store *memlock.Store, res *cell, due int, before *process, seed uint64) *process {
	ctx, end := context.WithCancel(t.Context())
	l := &process{conn: drivertest.Faulty(store), end: end, over: make(chan struct{}), done: before.done}
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
			_ = c.Close(closing) // a killed process sends nothing
		}()
		for !l.finished(due) && ctx.Err() == nil {
			lease, err := c.Mutex("x").Lock(ctx)
			if err != nil {
				continue // cut off
			}
			value, ok := res.read(t, lease.Token())
			if rng.IntN(100) == 0 {
				time.Sleep(time.Duration(rng.IntN(int(2 * ttl)))) // ignores the end of its lease
			} else {
				time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
			}
			if ok && ctx.Err() == nil && res.write(lease.Token(), value+1) {
				l.mu.Lock()
				l.done++
				l.mu.Unlock()
			}
			_ = lease.Release() // losing it is what this test is about
		}
	}()
	return l
}
