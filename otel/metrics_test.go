package otel_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
)

func (s *sdk) want(names []string, lines string) {
	s.Helper()
	if got, want := s.samples(names...), strings.TrimSpace(lines); got != want {
		s.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSDK(t, nil, 0)
		store := memlock.New()
		conn := drivertest.Faulty(store)
		c, other := s.client(conn), open(t, store, nil)
		ctx := t.Context()
		a := lock(t, c, "order/1")
		p, err := c.Semaphore("pool", 5).Acquire(ctx, 3)
		if err != nil {
			t.Fatal(err)
		}
		taken := lock(t, other, "order/3")
		e, err := c.Election("boss").Campaign(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *holdfast.Lease)
		go func() { got <- lock(t, c, "order/3") }()
		time.Sleep(time.Second)
		gauges := []string{"holdfast.held", "holdfast.waiting", "holdfast.held.oldest", "holdfast.wait.oldest",
			"holdfast.permits", "holdfast.leader", "holdfast.clients", "holdfast.clients.healthy", "holdfast.offered",
			"holdfast.unanswered", "holdfast.observer.dropped"}
		s.want(gauges, `
holdfast.clients.healthy{backend=memory} 1 {client}
holdfast.clients{backend=memory} 1 {client}
holdfast.held.oldest{backend=memory,lock.class=boss,mode=exclusive} 1 s
holdfast.held.oldest{backend=memory,lock.class=order/*,mode=exclusive} 1 s
holdfast.held.oldest{backend=memory,lock.class=pool,mode=permits} 1 s
holdfast.held{backend=memory,lock.class=boss,mode=exclusive} 1 {lease}
holdfast.held{backend=memory,lock.class=order/*,mode=exclusive} 1 {lease}
holdfast.held{backend=memory,lock.class=pool,mode=permits} 1 {lease}
holdfast.leader{backend=memory,lock.class=boss} 1 {election}
holdfast.observer.dropped{backend=memory} 0 {call}
holdfast.offered{backend=memory} 0 {lease}
holdfast.permits{backend=memory,lock.class=pool} 3 {permit}
holdfast.unanswered{backend=memory} 1 s
holdfast.wait.oldest{backend=memory,lock.class=boss,mode=exclusive} 0 s
holdfast.wait.oldest{backend=memory,lock.class=order/*,mode=exclusive} 1 s
holdfast.wait.oldest{backend=memory,lock.class=pool,mode=permits} 0 s
holdfast.waiting{backend=memory,lock.class=boss,mode=exclusive} 0 {waiter}
holdfast.waiting{backend=memory,lock.class=order/*,mode=exclusive} 1 {waiter}
holdfast.waiting{backend=memory,lock.class=pool,mode=permits} 0 {waiter}
`)
		_ = taken.Release()
		d := <-got
		_, _ = c.Mutex("order/1").TryLock(ctx)
		_, _ = c.Semaphore("order/1", 2).Acquire(ctx, 1)
		_ = c.Break(ctx, "order/1", a.Token(), "")
		_ = c.Break(ctx, "order/1", a.Token(), "")
		time.Sleep(ttl / 3) // a renewal, which notices that
		_ = a.Release()
		_, _, _ = d.HandOff()
		heal := conn.Cut()
		<-e.Done() // lost, as all others
		heal()
		time.Sleep(ttl)
		_ = p.Release()
		s.want([]string{"holdfast.acquire.duration", "holdfast.hold.duration", "holdfast.lease.margin",
			"holdfast.renewals", "holdfast.lost", "holdfast.breaks", "holdfast.leader.changes"}, `
holdfast.acquire.duration{backend=memory,error.type=held,lock.class=order/*,mode=exclusive,outcome=held} 1 s
holdfast.acquire.duration{backend=memory,error.type=kind,lock.class=order/*,mode=permits,outcome=refused} 1 s
holdfast.acquire.duration{backend=memory,lock.class=boss,mode=exclusive,outcome=granted} 1 s
holdfast.acquire.duration{backend=memory,lock.class=order/*,mode=exclusive,outcome=granted} 2 s
holdfast.acquire.duration{backend=memory,lock.class=pool,mode=permits,outcome=granted} 1 s
holdfast.breaks{backend=memory,error.type=gone,lock.class=order/*,outcome=refused} 1 {break}
holdfast.breaks{backend=memory,lock.class=order/*,outcome=ok} 1 {break}
holdfast.hold.duration{backend=memory,ended=handed_off,lock.class=order/*,mode=exclusive} 1 s
holdfast.hold.duration{backend=memory,ended=lost,lock.class=boss,mode=exclusive} 1 s
holdfast.hold.duration{backend=memory,ended=lost,lock.class=order/*,mode=exclusive} 1 s
holdfast.hold.duration{backend=memory,ended=lost,lock.class=pool,mode=permits} 1 s
holdfast.leader.changes{backend=memory,lock.class=boss} 1 {change}
holdfast.lease.margin{backend=memory} 1 s
holdfast.lost{backend=memory,lock.class=boss,reason=unreachable} 1 {lease}
holdfast.lost{backend=memory,lock.class=order/*,reason=broken} 1 {lease}
holdfast.lost{backend=memory,lock.class=pool,reason=unreachable} 1 {lease}
holdfast.renewals{backend=memory,error.type=uncertain,outcome=failed} 2 {renewal}
holdfast.renewals{backend=memory,outcome=ok} 4 {renewal}
`)
		_ = c.Close(ctx)
		s.want(gauges, `
holdfast.clients.healthy{backend=memory} 0 {client}
holdfast.clients{backend=memory} 0 {client}
holdfast.held.oldest{backend=memory,lock.class=boss,mode=exclusive} 0 s
holdfast.held.oldest{backend=memory,lock.class=order/*,mode=exclusive} 0 s
holdfast.held.oldest{backend=memory,lock.class=pool,mode=permits} 0 s
holdfast.held{backend=memory,lock.class=boss,mode=exclusive} 0 {lease}
holdfast.held{backend=memory,lock.class=order/*,mode=exclusive} 0 {lease}
holdfast.held{backend=memory,lock.class=pool,mode=permits} 0 {lease}
holdfast.leader{backend=memory,lock.class=boss} 0 {election}
holdfast.observer.dropped{backend=memory} 0 {call}
holdfast.offered{backend=memory} 0 {lease}
holdfast.permits{backend=memory,lock.class=pool} 0 {permit}
holdfast.unanswered{backend=memory} 0 s
holdfast.wait.oldest{backend=memory,lock.class=boss,mode=exclusive} 0 s
holdfast.wait.oldest{backend=memory,lock.class=order/*,mode=exclusive} 0 s
holdfast.wait.oldest{backend=memory,lock.class=pool,mode=permits} 0 s
holdfast.waiting{backend=memory,lock.class=boss,mode=exclusive} 0 {waiter}
holdfast.waiting{backend=memory,lock.class=order/*,mode=exclusive} 0 {waiter}
holdfast.waiting{backend=memory,lock.class=pool,mode=permits} 0 {waiter}
`)
		if got := s.samples("holdfast.store.duration"); !strings.Contains(got, "op=acquire,outcome=ok} 5 s") ||
			!strings.Contains(got, "error.type=deadline_exceeded,op=renew,outcome=failed") {
			t.Errorf("exchanges:\n%s", got)
		}
	})
}

// High cardinality of names makes few series. Links do not collect, also if ends are not reported.
func TestCardinality(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSDK(t, func(name string) string { return name }, 5)
		c := s.client(memlock.New())
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				for j := range 1000 {
					_ = lock(t, c, fmt.Sprint("name-", i, "-", j)).Release()
				}
			})
		}
		wg.Wait()
		for _, name := range []string{"holdfast.acquire.duration", "holdfast.hold.duration"} {
			if n := strings.Count(s.samples(name), "\n") + 1; n != 6 {
				t.Errorf("%d series of %s, want 5 classes and one for the others", n, name)
			}
		}
	})
}
