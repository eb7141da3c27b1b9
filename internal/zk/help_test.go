package zk_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/internal/zk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = time.Minute

// longSessions is the server setting that allows long sessions.
const longSessions = "maxSessionTimeout=200000"

// dial starts a session that ends with the test.
func dial(t *testing.T, cfg zk.Config) *zk.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	s, err := zk.Dial(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = s.Close(ctx) // the test may have made that impossible
	})
	return s
}

// on returns the Config of a session that must not expire, and whose calls may take long: a server may
// stand still for seconds.
func on(addr ...string) zk.Config {
	return zk.Config{Servers: addr, Timeout: time.Minute}
}

// shortSession returns the Config of a session that notices within seconds that its server is silent, and
// expires soon after.
func shortSession(addr ...string) zk.Config {
	return zk.Config{Servers: addr, Timeout: 10 * time.Second}
}

// within returns a context of the test that ends before the test times out.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// create creates a node that everybody may use.
func create(t *testing.T, s *zk.Session, path string, mode zk.Mode) (string, zk.Stat) {
	t.Helper()
	name, stat, err := s.Create(within(t), path, []byte("data"), mode, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	return name, stat
}

// want fails the test if err is not target (nil: no error).
func want(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v; want %v", what, err, target)
	}
}

// until waits for ok.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// exists reports whether s sees a node, after a sync. It asks again when its connection breaks.
func exists(t *testing.T, s *zk.Session, path string) bool {
	t.Helper()
	for ctx := within(t); ; time.Sleep(2 * time.Millisecond) {
		err := s.Sync(ctx, path)
		if err == nil {
			_, err = s.Exists(ctx, path)
		}
		switch {
		case err == nil || errors.Is(err, zk.ErrNoNode):
			return err == nil
		case !errors.Is(err, zk.ErrConnectionLoss) || isLost(s) || ctx.Err() != nil:
			t.Fatal(err)
		}
	}
}

func isLost(s *zk.Session) bool {
	select {
	case <-s.Lost():
		return true
	default:
		return false
	}
}

// recorder collects the events of a watch.
type recorder chan zk.Event

func newRecorder() recorder { return make(recorder, 10000) }

func (r recorder) f(e zk.Event) { r <- e }

// next returns the next event.
func (r recorder) next(t *testing.T) zk.Event {
	t.Helper()
	select {
	case e := <-r:
		return e
	case <-time.After(limit):
		t.Fatal("no event")
		panic("unreachable")
	}
}
