package zk_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

// armed has a watch of each kind, set on nodes under dir: data on d, exists on e (missing), child
// on c.
type armed struct {
	data, exist, child    recorder
	dataW, existW, childW *zk.Watch
}

func arm(t *testing.T, s *zk.Session, dir string) *armed {
	t.Helper()
	ctx := within(t)
	create(t, s, dir, zk.Persistent)
	for _, n := range []string{"/d", "/c"} {
		create(t, s, dir+n, zk.Persistent)
	}
	a := &armed{data: newRecorder(), exist: newRecorder(), child: newRecorder()}
	var errs [3]error
	_, _, a.dataW, errs[0] = s.GetW(ctx, dir+"/d", a.data.f)
	_, a.existW, errs[1] = s.ExistsW(ctx, dir+"/e", a.exist.f)
	_, _, a.childW, errs[2] = s.ChildrenW(ctx, dir+"/c", a.child.f)
	for i, target := range []error{nil, zk.ErrNoNode, nil} {
		want(t, fmt.Sprintf("watch %d", i), errs[i], target)
	}
	return a
}

// change makes every watch of arm fire.
func change(t *testing.T, by *zk.Session, dir string) {
	t.Helper()
	want(t, "delete", by.Delete(within(t), dir+"/d", zk.AnyVersion), nil)
	create(t, by, dir+"/e", zk.Persistent)
	create(t, by, dir+"/c/x", zk.Persistent)
}

func (a *armed) fired(t *testing.T, dir string) {
	t.Helper()
	for _, c := range []struct {
		r recorder
		e zk.Event
	}{
		{a.data, zk.Event{Type: zk.EventDeleted, Path: dir + "/d"}},
		{a.exist, zk.Event{Type: zk.EventCreated, Path: dir + "/e"}},
		{a.child, zk.Event{Type: zk.EventChildrenChanged, Path: dir + "/c"}},
	} {
		if e := c.r.next(t); e != c.e {
			t.Errorf("%+v; want %+v", e, c.e)
		}
	}
}

// expect demands these events and no others before a marker.
func expect(t *testing.T, r recorder, all ...zk.Event) {
	t.Helper()
	for _, w := range all {
		if e := r.next(t); e != w {
			t.Errorf("%+v; want %+v", e, w)
		}
	}
}

func empty(t *testing.T, what string, r recorder) {
	t.Helper()
	select {
	case e := <-r:
		t.Errorf("%s: %+v", what, e)
	default:
	}
}

// flushed returns when all events that the server has sent to s have been delivered.
func flushed(t *testing.T, s *zk.Session) {
	t.Helper()
	name, _ := create(t, s, "/settled-", zk.EphemeralSequential)
	r := newRecorder()
	if _, _, _, err := s.GetW(within(t), name, r.f); err != nil {
		t.Fatal(err)
	}
	want(t, "delete", s.Delete(within(t), name, zk.AnyVersion), nil)
	r.next(t)
}

func TestWatches(t *testing.T) {
	server := testenv.ZooKeeper(t, longSessions)
	s, by := dial(t, on(server.Addr)), dial(t, on(server.Addr))
	ctx := within(t)

	t.Run("each kind", func(t *testing.T) {
		a := arm(t, s, "/k")
		change(t, by, "/k")
		a.fired(t, "/k")
		want(t, "delete", by.Delete(ctx, "/k/e", zk.AnyVersion), nil)
		want(t, "delete", by.Delete(ctx, "/k/c/x", zk.AnyVersion), nil)
		want(t, "sync", s.Sync(ctx, "/"), nil)
		flushed(t, s)
		for _, r := range []recorder{a.data, a.exist, a.child} {
			empty(t, "a one-shot watch fired again", r)
		}
	})

	t.Run("exists of an existing node", func(t *testing.T) {
		create(t, by, "/there", zk.Persistent)
		r := newRecorder()
		if _, _, err := s.ExistsW(ctx, "/there", r.f); err != nil {
			t.Fatal(err)
		}
		want(t, "set", setErr(by.Set(ctx, "/there", nil, zk.AnyVersion)), nil)
		expect(t, r, zk.Event{Type: zk.EventDataChanged, Path: "/there"})
	})

	t.Run("removed", func(t *testing.T) {
		fresh := dial(t, on(server.Addr))
		a, second := arm(t, fresh, "/rm"), newRecorder()
		_, _, twinW, err := fresh.GetW(ctx, "/rm/d", second.f)
		want(t, "a second watch", err, nil)
		a.dataW.Remove()
		a.dataW.Remove()
		change(t, by, "/rm")
		// Removing one leaves the other.
		expect(t, second, zk.Event{Type: zk.EventDeleted, Path: "/rm/d"})
		twinW.Remove()
		a.exist.next(t)
		a.child.next(t)
		for _, w := range []*zk.Watch{a.existW, a.childW} {
			w.Remove()
		}
		want(t, "sync", fresh.Sync(ctx, "/"), nil)
		if n := serverWatches(t, server, fresh); n != 0 {
			t.Errorf("the server keeps %d watches that were removed", n)
		}
		flushed(t, fresh)
		empty(t, "a removed watch fired", a.data)
	})

	t.Run("no watch is left", func(t *testing.T) {
		create(t, by, "/want", zk.Persistent)
		before := watchCount(t, server)
		_, _, data, err := s.GetW(ctx, "/want", newRecorder().f)
		want(t, "get", err, nil)
		_, _, child, err := s.ChildrenW(ctx, "/want", newRecorder().f)
		want(t, "list", err, nil)
		_, exist, err := s.ExistsW(ctx, "/want/none", newRecorder().f)
		want(t, "exists", err, zk.ErrNoNode)
		if watchCount(t, server) == before {
			t.Fatal("no watch was set")
		}
		for _, w := range []*zk.Watch{data, child, exist} {
			w.Remove()
		}
		want(t, "sync", s.Sync(ctx, "/"), nil)
		if n := watchCount(t, server); n != before {
			t.Errorf("%s watches after removal; before: %s", n, before)
		}

		proxy := testenv.Proxy(t, server.Addr)
		slow := dial(t, on(proxy.Addr))
		deliver := proxy.HoldReplies()
		call, giveUp := context.WithCancel(ctx)
		defer giveUp()
		type result struct {
			w   *zk.Watch
			err error
		}
		given := make(chan result, 1)
		go func() {
			_, _, w, err := slow.GetW(call, "/want", newRecorder().f)
			given <- result{w, err}
		}()
		until(t, "the server has the request", func() bool { return watchCount(t, server) != before })
		giveUp()
		got := <-given
		want(t, "a call that was given up", got.err, zk.ErrConnectionLoss)
		if got.w != nil {
			t.Error("a call that was given up has a watch")
		}
		deliver()
		want(t, "sync", slow.Sync(ctx, "/"), nil)
		want(t, "sync", slow.Sync(ctx, "/"), nil) // the request caused by the first answer is done
		if n := watchCount(t, server); n != before {
			t.Errorf("%s watches after a call that was given up; before: %s", n, before)
		}
	})

	t.Run("a callback that blocks", func(t *testing.T) {
		stuck, release := make(chan struct{}), make(chan struct{})
		create(t, by, "/block", zk.Persistent)
		if _, _, _, err := s.GetW(ctx, "/block", func(zk.Event) {
			close(stuck)
			<-release
		}); err != nil {
			t.Fatal(err)
		}
		const n = 1000
		r := newRecorder()
		for i := range n {
			name, _ := create(t, by, fmt.Sprintf("/flood%d", i), zk.Persistent)
			_, _, _, err := s.GetW(ctx, name, r.f)
			want(t, "get", err, nil)
		}
		want(t, "set", setErr(by.Set(ctx, "/block", nil, zk.AnyVersion)), nil)
		<-stuck
		for i := range n {
			want(t, "set", setErr(by.Set(ctx, fmt.Sprintf("/flood%d", i), nil, zk.AnyVersion)), nil)
		}
		want(t, "calls go on", s.Sync(ctx, "/"), nil)
		close(release)
		for range n {
			r.next(t)
		}
	})
}

// watchCount returns how many watches of all kinds the server keeps for all sessions.
func watchCount(t *testing.T, server *testenv.ZooKeeperServer) string {
	t.Helper()
	text, err := server.Word("mntr")
	_, n, ok := strings.Cut(text, "zk_watch_count\t")
	if !ok {
		t.Fatalf("%v, %s", err, text)
	}
	n, _, _ = strings.Cut(n, "\n")
	return n
}

// serverWatches returns how many watches of data and existence the server keeps for a session.
func serverWatches(t *testing.T, server *testenv.ZooKeeperServer, s *zk.Session) (n int) {
	t.Helper()
	text, err := server.Word("wchc")
	if err != nil {
		t.Fatal(err)
	}
	mine := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "\t") {
			if mine {
				n++
			}
		} else {
			mine = strings.TrimSpace(line) == fmt.Sprintf("%#x", s.ID())
		}
	}
	return n
}

// Events during an outage of the connection come after it.
func TestWatchesSurviveReconnect(t *testing.T) {
	server := testenv.ZooKeeper(t, longSessions)
	proxy := testenv.Proxy(t, server.Addr)
	by := dial(t, on(server.Addr))
	ctx := within(t)
	for _, missed := range []bool{true, false} {
		t.Run(fmt.Sprintf("missed: %v", missed), func(t *testing.T) {
			s := dial(t, on(proxy.Addr))
			dir := fmt.Sprintf("/missed-%v", missed)
			a := arm(t, s, dir)
			proxy.Refuse()
			until(t, "disconnected", func() bool { return !s.Connected() })
			if missed {
				change(t, by, dir)
			}
			proxy.Heal()
			until(t, "reconnected", func() bool { return s.Sync(ctx, "/") == nil })
			if !missed {
				want(t, "flush", s.Flush(ctx), nil)
				for _, r := range []recorder{a.data, a.exist, a.child} {
					empty(t, "nothing happened", r)
				}
				change(t, by, dir)
			}
			a.fired(t, dir)
		})
	}
	t.Run("more than fits into a packet", func(t *testing.T) {
		s := dial(t, on(proxy.Addr))
		const n = 2000
		long := "/" + strings.Repeat("x", 200)
		fired := newRecorder()
		for i := range n {
			if _, _, err := s.ExistsW(ctx, fmt.Sprintf("%s%d", long, i), fired.f); i == 0 {
				want(t, "exists", err, zk.ErrNoNode)
			}
		}
		proxy.Reset()
		until(t, "reconnected", func() bool { return s.Sync(ctx, "/") == nil })
		if got := serverWatches(t, server, s); got != n {
			t.Errorf("%d watches after the reconnect; want %d", got, n)
		}
		create(t, by, long+"0", zk.Ephemeral)
		create(t, by, fmt.Sprintf("%s%d", long, n-1), zk.Ephemeral)
		fired.next(t)
		fired.next(t)
	})
}
