package zklock_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/zk"
)

const curatorUUID = "0f8fad5b-d9cb-469f-a165-70867728950e"

// Children that are no contenders are ignored and not deleted.
func TestForeignChildrenIgnored(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	var foreign []string
	for _, c := range []string{"abc", "0000000000", "_c_x", "_c_", "lock-", "x-lock-12", "x-lock-9999999999",
		"_c_" + curatorUUID + "-latch-0000000000", "%zz",
		// A client that asked for the servers' clock has died.
		"%holdfast:time-0000000000", "%holdfast:clock-0000000000"} {
		foreign = append(foreign, z.make(cfg.Root+"/x/"+c, zk.Ephemeral))
	}
	slices.Sort(foreign)
	a, b := newPeer(t, cfg), newPeer(t, cfg)
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		r := a.req("x")
		r.Mode = mode
		h := a.get(r)
		w := b.req("x")
		reply := b.refused(w)
		if rec := b.inspect("x"); len(rec.Holders) != 1 || rec.Waiting != 1 {
			t.Errorf("%+v", rec)
		}
		a.release(h)
		b.release(b.woken(w, reply))
	}
	for _, p := range []string{"locks", "leases"} {
		z.make(cfg.Root+"/s/"+p+"/abc", zk.Ephemeral)
	}
	b.release(b.get(b.permits("s", 2, 2)))
	got := z.nodes(cfg.Root + "/x")
	slices.Sort(got)
	if !slices.Equal(got, foreign) {
		t.Errorf("left: %q; want %q", got, foreign)
	}
}

// Holdfast waits for contenders of other programs, whatever their names are, in the order of their
// numbers, not of their names.
func TestForeignContenders(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	p := newPeer(t, cfg)
	for i, c := range []struct {
		what, name string
		mode       zk.Mode
		reads      bool // it lets readers in
	}{
		{"Curator's mutex", "_c_" + curatorUUID + "-lock-", zk.EphemeralSequential, false},
		{"Curator's writer", "_c_" + curatorUUID + "-__WRIT__", zk.EphemeralSequential, false},
		{"Curator's reader", "_c_" + curatorUUID + "-__READ__", zk.EphemeralSequential, true},
		{"go-zookeeper's lock", "_c_0f8fad5bd9cb469fa16570867728950e-lock-", zk.EphemeralSequential, false},
		{"kazoo's lock", "ffffad5bd9cb469fa16570867728950e__lock__", zk.EphemeralSequential, false},
		{"kazoo's reader", "ffffad5bd9cb469fa16570867728950e__rlock__", zk.EphemeralSequential, true},
		{"a negative number", "_c_" + curatorUUID + "-lock--000000001", zk.Ephemeral, false},
		{"the lowest number", "x-lock--2147483648", zk.Ephemeral, false},
		{"a node that outlives sessions", "x-lock-", zk.PersistentSequential, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			name := fmt.Sprintf("f%d", i)
			dir := cfg.Root + "/" + name
			path := z.make(dir+"/"+c.name, c.mode)
			if reply := p.refused(once(p.req(name))); reply.Holder == nil || reply.Holder.Info != "foreign" {
				t.Errorf("in the way: %+v", reply.Holder)
			}
			if reader := p.acquire(once(p.shared(name))); (reader.Token != 0) != c.reads {
				t.Errorf("a reader next to it: %+v", reader)
			}
			w := p.req(name)
			reply := p.refused(w)
			time.Sleep(20 * time.Millisecond)
			z.delete(path)
			if c.reads { // our own reader is in the way, too
				rec := p.inspect(name)
				must(t, "Break", p.Break(within(t), name, rec.Holders[0].Token))
			}
			p.release(p.woken(w, reply))
			z.empty(dir)
		})
	}
}

// Two foreign contenders have the same number: the next contender waits for both.
func TestEqualNumbers(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	p := newPeer(t, cfg)
	one, two := z.make(cfg.Root+"/x/a-lock-0000000000", zk.Ephemeral), z.make(cfg.Root+"/x/b-lock-0000000000",
		zk.Ephemeral)
	w := p.req("x")
	p.refused(w)
	if rec := p.inspect("x"); len(rec.Holders) != 2 || rec.Waiting != 1 {
		t.Errorf("%+v", rec)
	}
	z.delete(two)
	time.Sleep(50 * time.Millisecond)
	reply := p.refused(w)
	z.delete(one)
	p.release(p.woken(w, reply))
	z.empty(cfg.Root + "/x")
}

// Break ends a foreign holder as it ends one of holdfast.
func TestBreakForeign(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z := newTree(t, server.Addr)
	c := client(t, cfg, longTTL)
	z.make(cfg.Root+"/x/_c_"+curatorUUID+"-lock-", zk.EphemeralSequential)
	_, err := c.Mutex("x").TryLock(within(t))
	var he *holdfast.Error
	if !errors.As(err, &he) || he.Holder == nil {
		t.Fatalf("TryLock: %v; want the holder", err)
	}
	if rec, err := c.Inspect(within(t), "x"); err != nil || len(rec.Holders) != 1 || rec.Holders[0].Left != 0 {
		t.Errorf("%+v, %v; the remaining time of its holder's session cannot be known", rec.Holders, err)
	}
	must(t, "Break", c.Break(within(t), "x", he.Holder.Token, ""))
	l := lock(t, c, "x")
	if l.Token() <= he.Holder.Token {
		t.Errorf("token %d after %d", l.Token(), he.Holder.Token)
	}
	must(t, "Release", l.Release())
	z.empty(cfg.Root + "/x")
}
