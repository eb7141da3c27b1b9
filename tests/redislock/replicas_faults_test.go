package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// lateWait is a Conn whose first RunWait after arm begins when begin is closed.
type lateWait struct {
	redislock.Conn
	armed atomic.Bool
	begin chan struct{}
}

func (c *lateWait) RunWait(ctx context.Context, calls []redislock.Call, n int, d time.Duration) (
	[]redislock.Result, int, error) {
	if c.armed.CompareAndSwap(true, false) {
		<-c.begin
	}
	return c.Conn.RunWait(ctx, calls, n, d)
}

// TestLateGrantUnblocked: a request reaches the server after its cancellation, and somebody ends the
// server's wait for replicas with an error. Its grant is still cancelled.
func TestLateGrantUnblocked(t *testing.T) {
	t.Parallel()
	set := testenv.RedisReplicas(t, 1)
	conn := &lateWait{Conn: dialRueidis(t, set.Primary.Addr), begin: make(chan struct{})}
	b := redislock.New(conn, &redislock.Config{WaitReplicas: 1, WaitTimeout: time.Minute})
	s := openSession(t, b, 10*time.Minute) // the name is not free because the lease has expired
	set.Replicas[0].Pause()
	defer set.Replicas[0].Continue()
	r := exclusive("late")
	conn.armed.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, r)
		left <- err
	}()
	until(t, "the request is under way", func() bool { return !conn.armed.Load() })
	cancel()
	if err := <-left; !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("Acquire: %v; want ErrUncertain", err)
	}
	if err := s.Cancel(within(t, soon), r.Name, r.ID); err != nil {
		t.Fatal(err)
	}
	close(conn.begin)
	// The flag b means that the client is blocked. A connection that has written nothing is not.
	waiting := regexp.MustCompile(`id=(\d+) .* flags=\S*b\S* .* cmd=wait `)
	raw := rawClient(t, set.Primary.Addr)
	var id string
	until(t, "the server waits for replicas", func() bool {
		list, err := raw.Do(t.Context(), raw.B().ClientList().Build()).ToString()
		if m := waiting.FindStringSubmatch(list); err == nil && m != nil {
			id = m[1]
		}
		return id != ""
	})
	if reply := set.Primary.Do(fmt.Sprintf("CLIENT UNBLOCK %s ERROR", id)); reply != ":1" {
		t.Fatalf("CLIENT UNBLOCK: %s", reply)
	}
	until(t, "the name is free", func() bool {
		rec, err := b.Inspect(within(t, soon), r.Name)
		return err == nil && rec.Kind == driver.Unused && rec.Token > 0
	})
}

// leaving is a Conn that calls leave before the first cancellation.
type leaving struct {
	redislock.Conn
	once  sync.Once
	leave func()
}

func (c *leaving) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	if strings.Contains(s.Text, "-- Takes a request out of the queue") {
		c.once.Do(c.leave)
	}
	return c.Conn.Run(ctx, s, keys, args)
}

// TestTakenBackLate: the caller's context ends while a grant without confirmation is taken back. Close
// leaves nothing behind.
func TestTakenBackLate(t *testing.T) {
	t.Parallel()
	set := testenv.RedisReplicas(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn := &leaving{Conn: dialRueidis(t, set.Primary.Addr), leave: cancel}
	s := openSession(t, redislock.New(conn, impatient), 10*time.Minute)
	_, other := session(t, set.Primary.URL(), long)
	set.Replicas[0].Pause()
	defer set.Replicas[0].Continue()
	r := exclusive("taken back")
	if _, err := s.Acquire(ctx, r); !errors.Is(err, driver.ErrSpent) || !errors.Is(err, driver.ErrUncertain) {
		t.Errorf("Acquire: %v; want ErrSpent and ErrUncertain", err)
	}
	if err := s.Close(within(t, soon)); err != nil {
		t.Errorf("Close: %v", err)
	}
	unused(t, other, r.Name)
}
