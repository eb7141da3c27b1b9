package zk_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

func TestOperations(t *testing.T) {
	server := testenv.ZooKeeper(t, longSessions)
	s := dial(t, on(server.Addr))
	for _, c := range []struct {
		name string
		f    func(*testing.T, *zk.Session)
	}{
		{"nodes", testNodes},
		{"modes", testModes},
		{"errors", testErrors},
		{"multi", testMulti},
		{"create and list", testCreateAndList},
		{"watch all", testWatchAll},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(t, s) })
	}
}

func testNodes(t *testing.T, s *zk.Session) {
	ctx := within(t)
	name, made := create(t, s, "/n", zk.Persistent)
	if name != "/n" || made.Czxid == 0 || made.DataLength != 4 || made.EphemeralOwner != 0 {
		t.Errorf("created %q, %+v", name, made)
	}
	data, got, err := s.Get(ctx, "/n")
	if err != nil || string(data) != "data" || got != made {
		t.Errorf("got %q, %+v, %v; want what was created: %+v", data, got, err, made)
	}
	set, err := s.Set(ctx, "/n", []byte("longer"), 0)
	if err != nil || set.Version != 1 || set.DataLength != 6 || set.Mzxid <= made.Mzxid {
		t.Errorf("set: %+v, %v", set, err)
	}
	want(t, "set another version", setErr(s.Set(ctx, "/n", nil, 0)), zk.ErrBadVersion)
	if stat, err := s.Exists(ctx, "/n"); err != nil || stat != set {
		t.Errorf("exists: %+v, %v", stat, err)
	}
	create(t, s, "/n/b", zk.Persistent)
	create(t, s, "/n/a", zk.Persistent)
	names, stat, err := s.Children(ctx, "/n")
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"a", "b"}) || stat.NumChildren != 2 {
		t.Errorf("children: %q, %+v, %v", names, stat, err)
	}
	if names, _, err := s.Children(ctx, "/n/a"); err != nil || len(names) != 0 {
		t.Errorf("no children: %q, %v", names, err)
	}
	want(t, "delete with children", s.Delete(ctx, "/n", zk.AnyVersion), zk.ErrNotEmpty)
	want(t, "delete another version", s.Delete(ctx, "/n/a", 7), zk.ErrBadVersion)
	want(t, "delete", s.Delete(ctx, "/n/a", 0), nil)
	want(t, "exists after delete", statErr(s.Exists(ctx, "/n/a")), zk.ErrNoNode)
	want(t, "sync", s.Sync(ctx, "/n"), nil)
}

func setErr(_ zk.Stat, err error) error  { return err }
func statErr(_ zk.Stat, err error) error { return err }

func testModes(t *testing.T, s *zk.Session) {
	create(t, s, "/m", zk.Persistent)
	for i := range 3 {
		name, stat := create(t, s, "/m/n-", zk.EphemeralSequential)
		if name != fmt.Sprintf("/m/n-%010d", i) {
			t.Errorf("sequential node %d: %q", i, name)
		}
		if stat.EphemeralOwner != s.ID() {
			t.Errorf("node %d: owner %#x in session %#x", i, stat.EphemeralOwner, s.ID())
		}
	}
	_, first := create(t, s, "/m/e", zk.Ephemeral)
	if first.EphemeralOwner != s.ID() {
		t.Errorf("an ephemeral node's owner: %#x", first.EphemeralOwner)
	}
	create(t, s, "/c", zk.Container)
	create(t, s, "/c/x", zk.Persistent)
	want(t, "delete", s.Delete(within(t), "/c/x", zk.AnyVersion), nil)
	until(t, "the empty container is reaped", func() bool { return !exists(t, s, "/c") })
}

func testErrors(t *testing.T, s *zk.Session) {
	ctx := within(t)
	create(t, s, "/e", zk.Persistent)
	create(t, s, "/e/eph", zk.Ephemeral)
	none := func(_ string, _ zk.Stat, err error) error { return err }
	acl := zk.WorldACL(zk.PermAll)
	want(t, "create twice", none(s.Create(ctx, "/e", nil, zk.Persistent, acl)), zk.ErrNodeExists)
	want(t, "create without a parent", none(s.Create(ctx, "/no/x", nil, zk.Ephemeral, acl)), zk.ErrNoNode)
	want(t, "create below an ephemeral", none(s.Create(ctx, "/e/eph/x", nil, zk.Ephemeral, acl)), zk.ErrEphemeralParent)
	want(t, "create without an ACL", none(s.Create(ctx, "/e/acl", nil, zk.Ephemeral, nil)), zk.ErrInvalidACL)
	want(t, "delete", s.Delete(ctx, "/no", zk.AnyVersion), zk.ErrNoNode)
	want(t, "set", setErr(s.Set(ctx, "/no", nil, zk.AnyVersion)), zk.ErrNoNode)
	_, _, err := s.Get(ctx, "/no")
	want(t, "get", err, zk.ErrNoNode)
	_, _, err = s.Children(ctx, "/no")
	want(t, "children", err, zk.ErrNoNode)
	for _, path := range []string{"", "x", "/x/", "//", "/a//b", "/a\x00"} {
		err := s.Delete(ctx, path, zk.AnyVersion)
		want(t, fmt.Sprintf("path %q", path), err, zk.ErrBadArguments)
		want(t, fmt.Sprintf("path %q", path), err, zk.ErrNotSent)
		_, _, _, err = s.CreateAndList(ctx, path, nil, zk.Ephemeral, acl)
		want(t, fmt.Sprintf("path %q", path), err, zk.ErrNotSent)
	}
	err = none(s.Create(ctx, "/e/big", make([]byte, zk.DefaultMaxPacket), zk.Ephemeral, acl))
	want(t, "a packet that is too large", err, zk.ErrTooLarge)
	want(t, "a packet that is too large", err, zk.ErrNotSent)
}

func testMulti(t *testing.T, s *zk.Session) {
	ctx := within(t)
	create(t, s, "/x", zk.Persistent)
	create(t, s, "/x/lock", zk.Ephemeral)
	results, err := s.Multi(ctx, zk.CheckOp("/x/lock", 0), zk.SetOp("/x", []byte("fenced"), 0),
		zk.CreateOp("/x/n-", nil, zk.EphemeralSequential, zk.WorldACL(zk.PermAll)))
	if err != nil || len(results) != 3 || results[1].Stat.Version != 1 ||
		results[2].Path != "/x/n-0000000001" || results[2].Stat.EphemeralOwner != s.ID() {
		t.Fatalf("%+v, %v", results, err)
	}
	if stat, err := s.Exists(ctx, results[2].Path); err != nil || stat.Czxid != results[2].Stat.Czxid {
		t.Errorf("the multi created it in %d, it was created in %d, %v", results[2].Stat.Czxid, stat.Czxid, err)
	}
	results, err = s.Multi(ctx, zk.SetOp("/x", nil, zk.AnyVersion), zk.CheckOp("/x/gone", 0), zk.DeleteOp("/x/lock", 0))
	want(t, "a check that fails", err, zk.ErrNoNode)
	if len(results) != 3 {
		t.Fatalf("%+v", results)
	}
	for i, code := range []zk.Code{zk.ErrRolledBack, zk.ErrNoNode, zk.ErrRolledBack} {
		want(t, fmt.Sprintf("result %d", i), results[i].Err, code)
	}
	if data, _, _ := s.Get(ctx, "/x"); string(data) != "fenced" || !exists(t, s, "/x/lock") {
		t.Errorf("a multi that failed acted: %q", data)
	}
	_, err = s.Multi(ctx, zk.CheckOp("/x/lock", 0), zk.DeleteOp("/x/lock", 0))
	want(t, "check and delete", err, nil)
	for _, c := range []struct {
		op zk.Op
		is error
	}{{zk.CheckOp("/x", 1), nil}, {zk.CheckOp("/x", 2), zk.ErrBadVersion}, {zk.CheckOp("/x/lock", 0), zk.ErrNoNode}} {
		_, err = s.Multi(ctx, c.op)
		want(t, "check", err, c.is)
	}
	_, err = s.Multi(ctx, zk.CheckOp("bad", 0))
	want(t, "a bad path", err, zk.ErrNotSent)
}

func testCreateAndList(t *testing.T, s *zk.Session) {
	ctx := within(t)
	create(t, s, "/l", zk.Persistent)
	create(t, s, "/l/a", zk.Persistent)
	acl := zk.WorldACL(zk.PermAll)
	name, stat, lists, err := s.CreateAndList(ctx, "/l/n-", nil, zk.EphemeralSequential, acl, "/l/a", "/l/none")
	if err != nil || name != "/l/n-0000000001" || stat.EphemeralOwner != s.ID() || len(lists) != 3 {
		t.Fatalf("%q, %+v, %+v, %v", name, stat, lists, err)
	}
	slices.Sort(lists[0].Names)
	if !slices.Equal(lists[0].Names, []string{"a", "n-0000000001"}) || len(lists[1].Names) != 0 || lists[1].Err != nil {
		t.Errorf("listed %+v", lists)
	}
	want(t, "a list of a missing node", lists[2].Err, zk.ErrNoNode)
	_, _, _, err = s.CreateAndList(ctx, "/l/a", nil, zk.Ephemeral, acl)
	want(t, "create twice", err, zk.ErrNodeExists)
	name, _, lists, err = s.CreateAndList(ctx, "/top", nil, zk.Ephemeral, acl)
	if err != nil || name != "/top" || !slices.Contains(lists[0].Names, "top") {
		t.Errorf("in the root: %q, %+v, %v", name, lists, err)
	}

	all, err := s.SyncAndList(ctx, "/l", "/none")
	if err != nil || len(all) != 2 || len(all[0].Names) != 2 || all[0].Stat.NumChildren != 2 {
		t.Errorf("listed %+v, %v", all, err)
	}
	want(t, "a list of a missing node", all[1].Err, zk.ErrNoNode)
	nodes, _ := s.GetAll(ctx, nil, "/l/a", "/none", "bad")
	for _, n := range nodes {
		want(t, "a bad path fails all", n.Err, zk.ErrBadArguments)
	}
	changed := make(chan zk.Event, 1)
	nodes, w := s.GetAll(ctx, func(e zk.Event) { changed <- e }, "/l/a", "/none")
	if n := nodes[0]; n.Err != nil || string(n.Data) != "data" || n.Stat.DataLength != 4 {
		t.Errorf("got %+v", n)
	}
	want(t, "get of a missing node", nodes[1].Err, zk.ErrNoNode)
	_, err = s.Set(ctx, "/l/a", nil, zk.AnyVersion)
	want(t, "set", err, nil)
	if e := <-changed; w == nil || e.Type != zk.EventDataChanged || e.Path != "/l/a" {
		t.Errorf("event %+v", e)
	}
}

func testWatchAll(t *testing.T, s *zk.Session) {
	ctx := within(t)
	create(t, s, "/w", zk.Persistent)
	create(t, s, "/w/a", zk.Persistent)
	create(t, s, "/w/b", zk.Persistent)
	var seen []int
	errs := s.WatchAll(ctx, func(i int, e zk.Event) { seen = append(seen, i) }, "/w/a", "/w/none", "/w/b")
	want(t, "watch", errs[0], nil)
	want(t, "watch of a missing node", errs[1], zk.ErrNoNode)
	want(t, "watch", errs[2], nil)
	for _, p := range []string{"/w/b", "/w/a"} {
		want(t, "delete", s.Delete(ctx, p, zk.AnyVersion), nil)
	}
	create(t, s, "/w/none", zk.Persistent)
	want(t, "sync", s.Sync(ctx, "/"), nil)
	want(t, "flush", s.Flush(ctx), nil) // so the callbacks have run
	if !slices.Equal(seen, []int{2, 0}) {
		t.Errorf("events of %v; want of 2 and 0", seen)
	}
}

func TestAuth(t *testing.T) {
	server := testenv.ZooKeeper(t, longSessions)
	cfg := on(server.Addr)
	stranger := dial(t, cfg)
	cfg.Auth = []zk.Auth{zk.DigestAuth("user", "secret")}
	proxy := testenv.Proxy(t, server.Addr)
	cfg.Servers = []string{proxy.Addr}
	friend := dial(t, cfg)
	ctx := within(t)
	if _, _, err := friend.Create(ctx, "/d", []byte("x"), zk.Persistent,
		zk.DigestACL(zk.PermAll, "user", "secret")); err != nil {
		t.Fatal(err)
	}
	_, _, err := stranger.Get(ctx, "/d")
	want(t, "get by another user", err, zk.ErrNoAuth)
	_, _, err = stranger.Create(ctx, "/d/x", nil, zk.Ephemeral, zk.WorldACL(zk.PermAll))
	want(t, "create by another user", err, zk.ErrNoAuth)
	for range 2 { // the second time after a reconnect
		if data, _, err := friend.Get(ctx, "/d"); err != nil || string(data) != "x" {
			t.Errorf("%q, %v", data, err)
		}
		proxy.Reset()
		until(t, "reconnected", func() bool { return friend.Sync(ctx, "/") == nil })
	}
	cfg.Auth = []zk.Auth{{Scheme: "nonsense", Data: []byte("x")}}
	began := time.Now()
	if _, err := zk.Dial(ctx, cfg); time.Since(began) > limit/2 {
		t.Errorf("a credential that is refused was noticed after %v: %v", time.Since(began), err)
	} else {
		want(t, "a credential that is refused", err, zk.ErrAuthFailed)
	}
}

func TestTLS(t *testing.T) {
	server := testenv.ZooKeeperTLS(t, longSessions)
	cfg := on(server.Addr)
	cfg.TLS = server.TLS.Client(t)
	s := dial(t, cfg)
	create(t, s, "/x", zk.Ephemeral)
	if !exists(t, s, "/x") {
		t.Error("not created")
	}
	refused := func(what string, cfg zk.Config) {
		ctx, cancel := contextOf(t, time.Second)
		defer cancel()
		if s, err := zk.Dial(ctx, cfg); err == nil {
			t.Errorf("%s: connected", what)
			_ = s.Close(ctx)
		}
	}
	anonymous := server.TLS.Client(t)
	anonymous.Certificates = nil
	cfg.TLS = anonymous
	refused("without a client certificate", cfg)
	cfg.TLS = testenv.NewCerts(t).Client(t)
	refused("of another authority", cfg)
	cfg.TLS = nil
	refused("without TLS", cfg)
}
