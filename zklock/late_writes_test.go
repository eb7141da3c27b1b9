package zklock_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
	"github.com/holdfast-lock/holdfast/zklock"
)

// stopAt returns cfg for a client that stops before it sends the first request that contains text.
// stopped is closed then; the client goes on when proceed is called.
func stopAt(t testing.TB, cfg zklock.Config, text string) (_ zklock.Config, stopped <-chan struct{}, proceed func()) {
	return stopAtNth(t, cfg, text, 1)
}

// stopAtNth is stopAt for the request number n that contains text.
func stopAtNth(t testing.TB, cfg zklock.Config, text string, n int32) (
	_ zklock.Config, stopped <-chan struct{}, proceed func()) {
	s := &stop{text: []byte(text), at: make(chan struct{}), on: make(chan struct{})}
	s.left.Store(n)
	proceed = sync.OnceFunc(func() { close(s.on) })
	cfg.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &stoppingConn{c, s}, nil
	}
	t.Cleanup(proceed)
	return cfg, s.at, proceed
}

type stop struct {
	text   []byte
	at, on chan struct{}
	left   atomic.Int32
}

type stoppingConn struct {
	net.Conn
	s *stop
}

func (c *stoppingConn) Write(b []byte) (int, error) {
	i := bytes.Index(b, c.s.text)
	if i < 0 || c.s.left.Add(-1) != 0 {
		return c.Conn.Write(b)
	}
	if n, err := c.Conn.Write(b[:i]); err != nil { // requests before it
		return n, err
	}
	close(c.s.at)
	<-c.s.on
	n, err := c.Conn.Write(b[i:])
	return i + n, err
}

// A client has counted the last of a latch, and stops before it marks the latch as open. Meanwhile
// the latch is removed, another one of that name is set, and the same ID counts there. The late mark
// does not open that one.
func TestLateOpeningOfALatch(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	late, stopped, proceed := stopAt(t, cfg, "holdfast-latch/1 open")
	a, b := newPeer(t, cfg), newPeer(t, late)
	if _, err := a.SetCount(within(t), "l", 1); err != nil {
		t.Fatal(err)
	}
	counted := make(chan error, 1)
	go func() { _, err := b.CountDown(within(t), "l", "last"); counted <- err }()
	<-stopped
	must(t, "RemoveLatch", a.RemoveLatch(within(t), "l"))
	if made, err := a.SetCount(within(t), "l", 5); err != nil || !made {
		t.Fatalf("SetCount: %v, %v", made, err)
	}
	if left, err := a.CountDown(within(t), "l", "last"); err != nil || left != 4 {
		t.Errorf("CountDown: %d left, %v; want 4", left, err)
	}
	proceed()
	<-counted
	if rec := a.inspect("l"); rec.Count != 4 {
		t.Errorf("%d left of a latch of 5, which one has counted", rec.Count)
	}
	must(t, "RemoveLatch", a.RemoveLatch(within(t), "l"))
}

// A client has counted, and stops before it reads what is left. Meanwhile the latch is removed, and
// another one of that name is set. The client does not report what is left of that one, which it has
// not counted.
func TestCountOfARemovedLatch(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	path := cfg.Root + "/l/latch"
	late, stopped, proceed := stopAtNth(t, cfg, "\x00\x00\x00\x04\x00\x00\x00"+string(rune(len(path)))+path, 2) // getData
	a, b := newPeer(t, cfg), newPeer(t, late)
	if _, err := a.SetCount(within(t), "l", 2); err != nil {
		t.Fatal(err)
	}
	counted := make(chan error, 1)
	go func() { _, err := b.CountDown(within(t), "l", "x"); counted <- err }()
	<-stopped
	must(t, "RemoveLatch", a.RemoveLatch(within(t), "l"))
	if made, err := a.SetCount(within(t), "l", 5); err != nil || !made {
		t.Fatalf("SetCount: %v, %v", made, err)
	}
	proceed()
	wants(t, "CountDown", <-counted, driver.ErrGone)
	must(t, "RemoveLatch", a.RemoveLatch(within(t), "l"))
}

// A client finds a latch that another one is removing, and stops before it helps. Meanwhile the name
// gets another latch, which is opened. The late help does not affect that one.
func TestLateClearingOfALatch(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	path := cfg.Root + "/l/latch"
	halfway, begun, goOn := stopAt(t, cfg, "\x00\x00\x00\x0c\x00\x00\x00"+string(rune(len(path)))+path) // getChildren2
	late, stopped, proceed := stopAt(t, cfg, path+"/%holdfast:removed-")
	a, b, c := newPeer(t, cfg), newPeer(t, late), newPeer(t, halfway)
	open := func() {
		t.Helper()
		if made, err := a.SetCount(within(t), "l", 1); err != nil || !made {
			t.Fatalf("SetCount: %v, %v", made, err)
		}
		if left, err := a.CountDown(within(t), "l", "x"); err != nil || left != 0 {
			t.Fatalf("CountDown: %d left, %v", left, err)
		}
	}
	open()
	results := make(chan error, 2)
	go func() { results <- c.RemoveLatch(within(t), "l") }()
	<-begun
	go func() { results <- b.RemoveLatch(within(t), "l") }()
	<-stopped
	open()
	goOn()
	must(t, "the first RemoveLatch", <-results)
	proceed()
	wants(t, "the late RemoveLatch", <-results, driver.ErrGone)
	if rec := a.inspect("l"); rec.Kind != driver.Latch || rec.Count != 0 {
		t.Errorf("the record is %+v; want an open latch", rec)
	}
	must(t, "RemoveLatch", a.RemoveLatch(within(t), "l"))
}

// A client announces a latch, finds a lock, and stops before it withdraws. Meanwhile the lock is
// released, and another client sets a latch. The late withdrawal does not end that one.
func TestLateWithdrawalOfALatch(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	pending := cfg.Root + "/l/%holdfast:latch-"
	length := string(rune(len(pending) + len(rand.Text())))
	late, stopped, proceed := stopAt(t, cfg, "\x00\x00\x00\x02\x00\x00\x00"+length+pending) // delete
	a, b := newPeer(t, cfg), newPeer(t, late)
	h := a.get(a.req("l"))
	set := make(chan error, 1)
	go func() { _, err := b.SetCount(within(t), "l", 7); set <- err }()
	<-stopped
	a.release(h)
	if made, err := a.SetCount(within(t), "l", 5); err != nil || !made {
		t.Errorf("SetCount: %v, %v", made, err)
	}
	proceed()
	wants(t, "SetCount beside a lock", <-set, driver.ErrKind)
	if rec := a.inspect("l"); rec.Kind != driver.Latch || rec.Count != 5 {
		t.Errorf("the record is %+v; want a latch of 5", rec)
	}
	must(t, "RemoveLatch", a.RemoveLatch(within(t), "l"))
}

// A client announces a latch, and then the network fails for longer than one attempt to withdraw it.
// It is withdrawn while the session goes on.
func TestWithdrawalAfterAnOutage(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	proxy := testenv.Proxy(t, server.Addr)
	late, stopped, proceed := stopAt(t, through(cfg, proxy), "holdfast-latch/1 closed")
	const timeout = 16 * time.Second
	b := newPeerFor(t, late, timeout)
	ctx, cancel := context.WithCancel(t.Context())
	set := make(chan error, 1)
	go func() { _, err := b.SetCount(ctx, "l", 7); set <- err }()
	<-stopped
	proxy.Refuse()
	cancel()
	proceed()
	if err := <-set; err == nil {
		t.Error("SetCount: no error, although no server can have answered")
	}
	time.Sleep(timeout/8 + 100*time.Millisecond) // the outage
	proxy.Heal()
	z.empty(cfg.Root)
}

// A client finds a name free, and stops before it makes a latch of it. Meanwhile another client gets
// the name as a lock or a semaphore. The late step makes no latch.
func TestLateCreationOfALatch(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	for _, name := range []string{"lock", "semaphore"} {
		t.Run(name, func(t *testing.T) {
			late, stopped, proceed := stopAt(t, cfg, "holdfast-latch/1 closed")
			a, b := newPeer(t, cfg), newPeer(t, late)
			set := make(chan error, 1)
			go func() { _, err := b.SetCount(within(t), name, 7); set <- err }()
			<-stopped
			r := a.req(name)
			if name == "semaphore" {
				r = a.permits(name, 1, 2)
			}
			h := a.get(r)
			proceed()
			wants(t, "SetCount", <-set, driver.ErrKind)
			if rec := a.inspect(name); len(rec.Holders) != 1 {
				t.Errorf("the record is %+v; want the holder", rec)
			}
			a.release(h)
			if made, err := b.SetCount(within(t), name, 7); err != nil || !made {
				t.Errorf("SetCount on the free name: %v, %v", made, err)
			}
			must(t, "RemoveLatch", a.RemoveLatch(within(t), name))
		})
	}
}

// A waiter has read the limit, and stops before it takes its permits. Meanwhile the limit is
// lowered. It does not take more permits than that.
func TestLimitLoweredBeforeTheFirstPermits(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	for name, earlier := range map[string]int{
		"new": 0, "used with the same limit": 3, "used with another limit": 4, "folder deleted": 3,
		"folder deleted, another limit": 4,
	} {
		t.Run(name, func(t *testing.T) {
			late, stopped, proceed := stopAt(t, cfg, "-lease-")
			a, b := newPeer(t, cfg), newPeer(t, late)
			if earlier != 0 {
				a.release(a.get(a.permits(name, 1, earlier)))
			}
			r := b.permits(name, 3, 3)
			replies := make(chan driver.Reply, 1)
			go func() {
				reply, err := b.Acquire(within(t), r)
				if err != nil {
					t.Error(err)
				}
				replies <- reply
			}()
			<-stopped
			if strings.HasPrefix(name, "folder deleted") { // as the servers do when it is empty
				err := z.Delete(within(t), cfg.Root+"/"+name+"/leases", zk.AnyVersion)
				if !errors.Is(err, zk.ErrNoNode) {
					must(t, "delete", err)
				}
			}
			setLimit(t, a, name, 2)
			proceed()
			reply := <-replies
			if reply.Token != 0 {
				t.Fatal("granted 3 permits of a limit of 2")
			}
			setLimit(t, a, name, 3)
			b.release(b.woken(r, reply))
		})
	}
}

// A request reads the limit, which two folders contain, and stops before it reads either of them.
// Meanwhile the limit is lowered. It does not take more permits than that.
func TestLimitLoweredWhileItIsRead(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	for _, c := range []struct {
		name, folder string
		held         int
	}{
		{"first permits, locks", "locks", 0}, {"first permits, leases", "leases", 0},
		{"more permits, locks", "locks", 1}, {"more permits, leases", "leases", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := cfg.Root + "/" + c.name + "/" + c.folder
			late, stopped, proceed := stopAt(t, cfg, "\x00\x00\x00\x04\x00\x00\x00"+string(rune(len(path)))+path) // getData
			a, b := newPeer(t, cfg), newPeer(t, late)
			h := a.get(a.permits(c.name, 1, 3))
			if c.held == 0 {
				a.release(h)
			}
			r := b.permits(c.name, 3-c.held, 3)
			replies := make(chan driver.Reply, 1)
			go func() {
				reply, err := b.Acquire(within(t), r)
				if err != nil && !errors.Is(err, driver.ErrKind) {
					t.Error(err)
				}
				replies <- reply
			}()
			<-stopped
			setLimit(t, a, c.name, 2)
			proceed()
			if reply := <-replies; reply.Token != 0 {
				t.Errorf("granted %d permits, with %d in use of a limit of 2", r.N, c.held)
			}
		})
	}
}

// A grant with a minimum hold moves to another node, and the answer is lost. Its release can still
// keep the name for longer.
func TestMarksAfterALostAnswer(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	for _, name := range []string{"downgrade", "adoption"} {
		t.Run(name, func(t *testing.T) {
			proxy := testenv.Proxy(t, server.Addr)
			writes := map[string]int32{"downgrade": 2, "adoption": 1}[name] // of a mark, by the client that moves the grant
			late, stopped, proceed := stopAtNth(t, through(cfg, proxy), " token=", writes)
			a, b := newPeer(t, cfg), newPeer(t, late)
			r := a.req(name)
			r.MinHold = time.Hour
			h := driver.Hold{Name: name, ID: b.req(name).ID}
			var move func(ctx context.Context) error
			if name == "downgrade" {
				r.ID = h.ID
				h = b.get(r)
				move = func(ctx context.Context) error { return b.Downgrade(ctx, h) }
			} else {
				theirs := a.get(r)
				h.Token = theirs.Token
				move = func(ctx context.Context) error { return b.Adopt(ctx, theirs, h.ID, "") }
			}
			moved := make(chan error, 1)
			go func() { moved <- move(within(t)) }()
			<-stopped
			proxy.DropReplies()
			proceed()
			until(t, "it was carried out", func() bool {
				rec := a.inspect(name)
				return len(rec.Holders) == 1 && rec.Holders[0].ID == h.ID &&
					(rec.Holders[0].Mode == driver.Shared) == (name == "downgrade")
			})
			proxy.Reset()
			proxy.Heal()
			if err := <-moved; err == nil {
				t.Error("no error, although no answer can have arrived")
			}
			must(t, "the repeated move", answered(t, move))
			must(t, "Release", b.Release(within(t), h, 2*time.Hour))
			if rec := a.inspect(name); len(rec.Holders) != 1 || !rec.Holders[0].Kept || rec.Holders[0].Left < 90*time.Minute {
				t.Errorf("the record is %+v; want a name that is kept for two hours", rec)
			}
			must(t, "Break", a.Break(within(t), name, h.Token))
		})
	}
}
