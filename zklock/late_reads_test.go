package zklock_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// readOf returns the text of a request that reads a contender's node.
func readOf(prefix, suffix string) string {
	const uuid, number = 36, 10
	return "\x00\x00\x00\x04\x00\x00\x00" + string(rune(len(prefix)+uuid+len(suffix)+number)) + prefix // getData
}

// A client has listed the nodes of a name, and stops before it reads them. Meanwhile the grant moves
// to another node. The client still finds that the name is in use.
func TestGrantMovesBeforeItIsRead(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	downgrade := func(a, _ *peer, h driver.Hold) (string, error) { return h.ID, a.Downgrade(within(t), h) }
	keep := func(a, _ *peer, h driver.Hold) (string, error) { return h.ID, a.Release(within(t), h, time.Hour) }
	adopt := func(_, c *peer, h driver.Hold) (string, error) {
		id := c.req(h.Name).ID
		return id, c.Adopt(within(t), h, id, "")
	}
	setCount := func(b *peer, h driver.Hold) error { _, err := b.SetCount(within(t), h.Name, 7); return err }
	acquire := func(r func(b *peer, name string) *driver.Request) func(b *peer, h driver.Hold) error {
		return func(b *peer, h driver.Hold) error { _, err := b.Acquire(within(t), r(b, h.Name)); return err }
	}
	permits := func(b *peer, name string) *driver.Request { return b.permits(name, 1, 2) }
	find := func(b *peer, h driver.Hold) error {
		rec, err := b.Inspect(within(t), h.Name)
		if len(rec.Holders) != 1 || rec.Token != h.Token {
			t.Errorf("%s: the record is %+v; want token %d", h.Name, rec, h.Token)
		}
		return err
	}
	list := func(b *peer, h driver.Hold) error {
		all, err := b.List(within(t), h.Name, "", 1)
		if len(all) != 1 || all[0].Token != h.Token {
			t.Errorf("%s: the list is %+v; want token %d", h.Name, all, h.Token)
		}
		return err
	}
	end := func(b *peer, h driver.Hold) error { return b.Break(within(t), h.Name, h.Token) }
	setLimit := func(b *peer, h driver.Hold) error { return b.SetLimit(within(t), h.Name, 3) }
	for name, c := range map[string]struct {
		move func(a, c *peer, h driver.Hold) (string, error)
		call func(b *peer, h driver.Hold) error
		want error
	}{
		"a latch beside a downgrade":       {downgrade, setCount, driver.ErrKind},
		"a latch beside a kept name":       {keep, setCount, driver.ErrKind},
		"a semaphore beside an adoption":   {adopt, acquire(permits), driver.ErrKind},
		"Inspect beside a downgrade":       {downgrade, find, nil},
		"List beside an adoption":          {adopt, list, nil},
		"Break beside a downgrade":         {downgrade, end, nil},
		"permits: a lock":                  {adopt, acquire((*peer).req), driver.ErrKind},
		"permits: SetLimit":                {adopt, setLimit, nil},
		"permits: Break beside a kept one": {keep, end, nil},
	} {
		t.Run(name, func(t *testing.T) {
			text := readOf(cfg.Root+"/"+name+"/_c_", "-lock-")
			if strings.HasPrefix(name, "permits") {
				text = readOf(cfg.Root+"/"+name+"/leases/_c_", "-lease-")
			}
			late, stopped, proceed := stopAt(t, cfg, text)
			a, b, other := newPeer(t, cfg), newPeer(t, late), newPeer(t, cfg)
			r := a.req(name)
			if strings.HasPrefix(name, "permits") {
				r = permits(a, name)
			}
			h := a.get(r)
			result := make(chan error, 1)
			go func() { result <- c.call(b, h) }()
			<-stopped
			_, err := c.move(a, other, h)
			must(t, "move", err)
			proceed()
			wants(t, "the call", <-result, c.want)
			if err := a.Break(within(t), name, h.Token); !errors.Is(err, driver.ErrGone) {
				must(t, "Break", err)
			}
		})
	}
}

// A client's server does not know yet that a latch has been set, or that another one has taken its
// place. The client asks the leader before it says that there is none, or that it is open.
func TestLatchUnknownToTheServer(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	for _, name := range []string{"none", "an open one"} {
		t.Run(name, func(t *testing.T) {
			const sync = "\x00\x00\x00\x09\x00\x00\x00\x01/"
			a := newPeer(t, cfg)
			if name != "none" {
				_, err := a.SetCount(within(t), name, 0)
				must(t, "SetCount", err)
			}
			calls := map[string]func(b *peer) error{
				"Await": func(b *peer) error {
					reply, err := b.Await(within(t), name, "x")
					if reply.Token != 0 {
						t.Error("Await: open; want a latch of 5 that nobody has counted")
					}
					return err
				},
				"CountDown": func(b *peer) error { _, err := b.CountDown(within(t), name, "x"); return err },
			}
			var proceeds []func()
			results := make(chan error, len(calls))
			for _, call := range calls {
				late, stopped, proceed := stopAt(t, cfg, sync)
				proceeds = append(proceeds, proceed)
				b := newPeer(t, late)
				go func() { results <- call(b) }()
				select {
				case <-stopped:
				case err := <-results:
					t.Fatalf("%v, without a sync", err)
				}
			}
			if name != "none" {
				must(t, "RemoveLatch", a.RemoveLatch(within(t), name))
			}
			_, err := a.SetCount(within(t), name, 5)
			must(t, "SetCount", err)
			for _, proceed := range proceeds {
				proceed()
				must(t, "the call", <-results)
			}
			if rec := a.inspect(name); rec.Count != 4 {
				t.Errorf("the record is %+v; want 4 left", rec)
			}
			must(t, "RemoveLatch", a.RemoveLatch(within(t), name))
		})
	}
}

// A client reads a name, and stops halfway. Meanwhile the lock is handed over, a reader's grant moves,
// or a waiter takes permits. The record is one that the name has had: it neither shows a waiter and no
// holder, nor leaves out a grant that has not ended, nor shows a request twice.
func TestHolderChangesBeforeItIsRead(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	a, b := newPeer(t, cfg), newPeer(t, cfg)
	handOver := func(name string) (change func(), want func() []uint64) {
		held, r := a.get(a.req(name)), b.req(name)
		waits := b.refused(r)
		var next driver.Hold
		return func() { a.release(held); next = b.woken(r, waits) }, func() []uint64 { return []uint64{next.Token} }
	}
	adopt := func(name string) (change func(), want func() []uint64) {
		one, two := a.get(a.shared(name)), a.get(a.shared(name))
		return func() { must(t, "Adopt", b.Adopt(within(t), one, b.shared(name).ID, "")) },
			func() []uint64 { return []uint64{one.Token, two.Token} }
	}
	take := func(name string) (change func(), want func() []uint64) {
		held, r := a.get(a.permits(name, 1, 1)), b.permits(name, 1, 1)
		waits := b.refused(r)
		var next driver.Hold
		return func() { a.release(held); next = b.woken(r, waits) }, func() []uint64 { return []uint64{next.Token} }
	}
	inspect := func(p *peer, name string) (driver.Record, error) { return p.Inspect(within(t), name) }
	list := func(p *peer, name string) (driver.Record, error) {
		all, err := p.List(within(t), name, "", 1)
		return append(all, driver.Record{})[0], err
	}
	for name, c := range map[string]struct {
		before string // the request that it stops before
		begin  func(name string) (change func(), want func() []uint64)
		read   func(p *peer, name string) (driver.Record, error)
	}{
		"Inspect, hand-over": {"-lock-", handOver, inspect},
		"List, hand-over":    {"-lock-", handOver, list},
		"Inspect, reader":    {"-__READ__", adopt, inspect},
		"List, reader":       {"-__READ__", adopt, list},
		"Inspect, permits":   {"/leases", take, inspect},
		"List, permits":      {"/leases", take, list},
	} {
		t.Run(name, func(t *testing.T) {
			text := readOf(cfg.Root+"/"+name+"/_c_", c.before)
			if c.before == "/leases" {
				text = cfg.Root + "/" + name + c.before // the first request about it lists it
			}
			late, stopped, proceed := stopAt(t, cfg, text)
			p := newPeer(t, late)
			change, want := c.begin(name)
			result := make(chan error, 1)
			var r driver.Record
			go func() {
				var err error
				r, err = c.read(p, name)
				result <- err
			}()
			<-stopped
			change()
			proceed()
			must(t, "the read", <-result)
			var tokens []uint64
			for _, h := range r.Holders {
				tokens = append(tokens, h.Token)
			}
			if !slices.Equal(tokens, want()) || r.Waiting != 0 {
				t.Errorf("tokens %d hold and %d wait; want %d and none", tokens, r.Waiting, want())
			}
		})
	}
}
