package quorum_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
)

// TestTwoMissedReleasesOfClosedSessions: two clients have ended, each while another one of three servers was away. So
// two servers have a grant that nobody ends before its lease is over, and no majority is free. The record says so, and
// the waiter gets the lock then.
func TestTwoMissedReleasesOfClosedSessions(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	g := start(t, 3, time.Minute)
	ways := g.proxies()
	b := g.backend(g.addrs()) // whose connections are not cut
	waits := open(t, b, "c", ttl)
	last := time.Now()
	for i, id := range []string{"a", "b"} {
		last = g.leaves(t, ways, i, id, ttl)
	}
	r := try("x", "c-1")
	r.Wait = true
	reply, err := waits.Acquire(within(t), r)
	for passing(err) && time.Since(last) < ttl/2 { // on a busy machine
		reply, err = waits.Acquire(within(t), r)
	}
	if err != nil || reply.Token != 0 {
		t.Fatalf("Acquire beside two grants: %+v, %v", reply, err)
	}
	both := func(rec driver.Record) bool { // if all three servers have answered in time
		p := rec.Partial
		return rec.Kind == driver.Lock && len(rec.Holders) == 0 && len(p) == 2 && p[0].ID == "a-1" && p[1].ID == "b-1" &&
			p[0].Left > 0 && p[0].Partial && p[1].Partial
	}
	rec, err := b.Inspect(within(t), "x")
	for time.Since(last) < ttl/2 && !(err == nil && both(rec)) {
		rec, err = b.Inspect(within(t), "x")
	}
	if err != nil || !both(rec) {
		t.Errorf("%+v, %v; want the grants of a and b", rec, err)
	}
	if time.Since(last) < ttl/2 {
		if err := waits.Cancel(within(t), "x", "c-1"); err != nil {
			t.Error(err)
		}
		list, err := b.List(within(t), "", "", 10)
		if err != nil || len(list) != 1 || !both(list[0]) {
			t.Errorf("without a waiter: %+v, %v; want the grants of a and b", list, err)
		}
		refused, err := waits.Acquire(within(t), try("x", "d-1"))
		if err != nil || refused.Token != 0 || refused.Holder == nil || !refused.Holder.Partial {
			t.Errorf("Acquire without waiting: %+v, %v; want a holder at too few servers", refused.Holder, err)
		}
		r.ID = "c-2"
		reply, _ = waits.Acquire(within(t), r)
	}
	for reply.Token == 0 && time.Since(last) < 3*ttl {
		time.Sleep(50 * time.Millisecond)
		reply, _ = waits.Acquire(within(t), r)
	}
	if reply.Token == 0 {
		t.Fatalf("nobody has the lock %v after the last grant; the TTL is %v", time.Since(last), ttl)
	}
	if rec, err = b.Inspect(within(t), "x"); err != nil || len(rec.Partial) > 0 {
		t.Errorf("while c holds it: %+v, %v", rec, err)
	}
}

// leaves makes a client get x and end while server i is away. That server keeps the grant. The lease has begun before
// the time that leaves returns.
func (g *group) leaves(t *testing.T, ways proxies, i int, id string, ttl time.Duration) (granted time.Time) {
	t.Helper()
	b := g.backend(ways.addrs())
	s := open(t, b, id, ttl)
	r := try("x", id+"-1")
	r.MinHold = time.Millisecond // it is asked for at all servers at once
	h := get(t, s, r)
	granted = time.Now()
	g.shows(t, i, "x", "the grant", func(r driver.Record) bool { return len(r.Holders) == 1 && r.Holders[0].ID == h.ID },
		renewals(t, s, h))
	ways[i].Refuse()
	// If another client has left a grant, too, only one server does this release: whether that is a majority depends
	// on what is known about the third.
	if err := s.Release(within(t), h, 0); err != nil && !errors.Is(err, driver.ErrUncertain) {
		t.Fatalf("Release: %v", err)
	}
	_ = s.Close(within(t))
	_ = b.Close()
	ways[i].Heal()
	return granted
}

// isFree checks that Inspect and List say that a name, the only one, is free. A server that does not answer in time
// counts as one that is not, so a busy machine has several tries.
func isFree(t *testing.T, b *quorum.Backend, name string) {
	t.Helper()
	free := func() error {
		rec, err := b.Inspect(within(t), name)
		list, lerr := b.List(within(t), "", "", 10)
		if err != nil || lerr != nil || rec.Kind != driver.Unused || len(list) > 0 {
			return fmt.Errorf("Inspect: %+v, %v; List: %+v, %v; want it free", rec, err, list, lerr)
		}
		return nil
	}
	began := time.Now()
	err := free()
	for err != nil && time.Since(began) < 30*time.Second {
		err = free()
	}
	if err != nil {
		t.Error(err)
	}
}

// TestFreeBesideAMissedRelease: one server has a grant that nobody ends, and a majority is free. So the name is not in
// use, for Inspect and for List, which hears nothing of a name from servers where it is free.
func TestFreeBesideAMissedRelease(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute)
	g.leaves(t, g.proxies(), 0, "a", 50*time.Second)
	b := g.backend(g.addrs())
	isFree(t, b, "x")
	get(t, open(t, b, "c", time.Second), try("x", "c-1"))
}

// TestFreeAtASlowServer: one of the free servers is far away. A request waits for it, and so do Inspect and List.
func TestFreeAtASlowServer(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute)
	ways := g.proxies()
	g.leaves(t, ways, 0, "a", 50*time.Second)
	b := g.backend(ways.addrs())
	ways[2].Delay(150 * time.Millisecond) // each way
	c := open(t, b, "c", 20*time.Second)
	isFree(t, b, "x")
	get(t, c, try("x", "c-1"))
}

// TestListBesideASilentServer: a name is free at one server, another has a grant that nobody ends, and the third is
// silent. So it is not clear whether the name is free. The first lists wait a second for the silent server, and the
// others do not.
func TestListBesideASilentServer(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute)
	ways := g.proxies()
	g.leaves(t, ways, 0, "a", 50*time.Second)
	b := g.backend(ways.addrs())
	isFree(t, b, "x")
	ways[2].Hole()
	const lists = 12
	began := time.Now()
	for range lists {
		list, err := b.List(within(t), "", "", 10)
		if err != nil || len(list) != 1 || len(list[0].Partial) != 1 || list[0].Partial[0].ID != "a-1" {
			t.Fatalf("%+v, %v; want the grant of a", list, err)
		}
	}
	if took := time.Since(began); took < time.Second || took > lists*time.Second*3/4 {
		t.Errorf("%d lists took %v", lists, took)
	}
}
