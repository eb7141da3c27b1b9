package zk_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

func TestManyCallsInFlight(t *testing.T) {
	server := testenv.ZooKeeper(t, longSessions)
	s := dial(t, on(server.Addr))
	ctx := within(t)
	create(t, s, "/many", zk.Persistent)
	const n = 1000
	names := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			data := fmt.Appendf(nil, "%d", i)
			name, stat, err := s.Create(ctx, "/many/n-", data, zk.EphemeralSequential, zk.WorldACL(zk.PermAll))
			if err != nil || stat.EphemeralOwner != s.ID() {
				t.Errorf("create: %+v, %v", stat, err)
				return
			}
			got, _, err := s.Get(ctx, name)
			if err != nil || string(got) != string(data) { // the answer to another call
				t.Errorf("get %s: %q, %v; want %q", name, got, err, data)
			}
			names[i] = name
		})
	}
	wg.Wait()
	unique := map[string]bool{}
	for _, name := range names {
		unique[name] = true
	}
	if len(unique) != n {
		t.Errorf("%d names for %d nodes", len(unique), n)
	}
}

func TestLargeAnswers(t *testing.T) {
	server := testenv.ZooKeeper(t, longSessions)
	cfg := on(server.Addr)
	small := dial(t, cfg)
	cfg.MaxPacket = 4 << 20
	large := dial(t, cfg)
	ctx := within(t)
	create(t, small, "/dir", zk.Persistent)
	const n, batch = 6000, 500
	for i := 0; i < n; i += batch {
		var ops []zk.Op
		for j := range batch {
			path := fmt.Sprintf("/dir/%s%05d", strings.Repeat("x", 190), i+j)
			ops = append(ops, zk.CreateOp(path, nil, zk.Persistent, zk.WorldACL(zk.PermAll)))
		}
		if _, err := small.Multi(ctx, ops...); err != nil {
			t.Fatal(err)
		}
	}
	r := newRecorder()
	_, _, w, err := small.ChildrenW(ctx, "/dir", r.f)
	want(t, "a list beyond the limit", err, zk.ErrTooLarge)
	if w != nil || !small.Connected() || isLost(small) {
		t.Error("a list beyond the limit broke the connection")
	}
	want(t, "the session continues", small.Sync(ctx, "/"), nil)
	if n := watchCount(t, server); n != "0" {
		t.Errorf("the server keeps the watch of a call that failed: %s", n)
	}
	if err := large.Sync(ctx, "/"); err != nil {
		t.Fatal(err)
	}
	names, stat, err := large.Children(ctx, "/dir")
	if err != nil || len(names) != n || stat.NumChildren != n {
		t.Errorf("%d of %d, %v", len(names), stat.NumChildren, err)
	}
}
