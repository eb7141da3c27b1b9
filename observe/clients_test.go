package observe_test

import (
	"runtime/pprof"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
	"github.com/holdfast-lock/holdfast/observe"
)

// A client that was closed is left out, also if nobody was told; what it dropped is still counted.
func TestClientsThatAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clients observe.Clients
		classes := observe.NewClasses(nil, 0)
		store := memlock.New()
		c := client(t, store, observe.All(&holdfast.Observer{Opened: clients.Observer().Opened}, // no Closed
			&holdfast.Observer{Lost: func(string, uint64, holdfast.Reason) { panic("of an observer") }}))
		l, err := c.Mutex("x/1", holdfast.MaxHold(time.Second)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		<-l.Done()
		synctest.Wait()
		open := observe.StoreLoad{Store: "memory", Clients: 1, Healthy: 1, Dropped: 1}
		closed := observe.StoreLoad{Store: "memory", Dropped: 1}
		for _, want := range []observe.StoreLoad{open, closed, closed} {
			loads, stores := clients.Read(classes)
			if len(stores) != 1 || stores[0] != want || len(loads) != 0 {
				t.Errorf("got %+v, %+v; want %+v", loads, stores, want)
			}
			_ = c.Close(t.Context())
		}
		n := 0
		clients.Each(func(*holdfast.Client) { n++ })
		if n != 0 {
			t.Errorf("%d clients are kept", n)
		}
	})
}

// The loads of several clients of one store are added; the oldest counts.
func TestLoadsOfSeveralClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clients observe.Clients
		store := memlock.New()
		a, b := client(t, store, clients.Observer()), client(t, store, clients.Observer())
		lease, err := a.Mutex("x/1").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := b.Mutex("x/2").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := make(chan *holdfast.Lease)
		go func() {
			l, err := b.Mutex("x/1").Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		time.Sleep(time.Second)
		want := observe.Load{Store: "memory", Class: "x/*", Mode: holdfast.ModeExclusive, Held: 2, Waiting: 1,
			HeldFor: 2 * time.Second, WaitedFor: time.Second}
		if loads, stores := clients.Read(observe.NewClasses(nil, 0)); len(loads) != 1 || loads[0] != want ||
			stores[0].Clients != 2 || stores[0].Unanswered != 2*time.Second {
			t.Errorf("got %+v, %+v; want %+v", loads, stores, want)
		}
		_ = lease.Release()
		<-got
	})
}

// The profiles of the process have the names that documents give them.
func TestProfiles(t *testing.T) {
	p := observe.Profiles()
	if observe.Profiles() != p || pprof.Lookup("holdfast.held") != p.Held ||
		pprof.Lookup("holdfast.waiting") != p.Waiting {
		t.Error("the profiles of the process are not these")
	}
	c, err := holdfast.New(t.Context(), memlock.New(), &holdfast.Config{Profiles: p})
	if err != nil {
		t.Fatal(err)
	}
	before := p.Held.Count()
	l, err := c.Mutex("x").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := p.Held.Count() - before; n != 1 {
		t.Errorf("%d leases in the profile", n)
	}
	_ = l.Release()
	_ = c.Close(t.Context())
	if n := p.Held.Count() - before; n != 0 {
		t.Errorf("%d leases in the profile at the end", n)
	}
}
