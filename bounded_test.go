package holdfast_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// bounded is a store in memory that gives one token in place of a block while room is false (R21). Its
// count has the parity that says so when a grant with a block is made: all blocks have an even length.
type bounded struct {
	driver.Backend
	mu   sync.Mutex
	room func() bool
	own  driver.Session
	ids  int
}

func newBounded(t *testing.T, store driver.Backend, room func() bool) *bounded {
	t.Helper()
	own := must(store.Open(t.Context(), driver.SessionConfig{ID: "own", TTL: ttl}))(t)
	return &bounded{Backend: store, room: room, own: own}
}

func (b *bounded) Kinds() driver.Kinds {
	k := b.Backend.Kinds()
	k.Bounded = true
	return k
}

// step begins a call that may make a grant, and end ends it.
func (b *bounded) step() (end func()) {
	b.mu.Lock()
	odd := uint64(1)
	if b.room() {
		odd = 0
	}
	for count := odd + 1; count%2 != odd; { // the store counts the tokens of all names
		b.ids++
		r := &driver.Request{ID: strconv.Itoa(b.ids), Name: "other", Mode: driver.Exclusive, N: 1}
		reply, err := b.own.Acquire(context.Background(), r)
		if err == nil {
			err = b.own.Release(context.Background(), driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}, 0)
		}
		if count = reply.Token; err != nil {
			panic(err)
		}
	}
	return b.mu.Unlock
}

func (b *bounded) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, cfg)
	return &boundedSession{s, b}, err
}

func (b *bounded) Break(ctx context.Context, name string, token uint64) error {
	defer b.step()()
	return b.Backend.Break(ctx, name, token)
}

type boundedSession struct {
	driver.Session
	b *bounded
}

func (s *boundedSession) Acquire(ctx context.Context, r *driver.Request) (driver.Reply, error) {
	defer s.b.step()()
	even := *r
	if r.Tokens > 1 {
		even.Tokens += r.Tokens % 2
	}
	return s.Session.Acquire(ctx, &even)
}

func (s *boundedSession) Release(ctx context.Context, h driver.Hold, keep time.Duration) error {
	defer s.b.step()()
	return s.Session.Release(ctx, h, keep)
}

func (s *boundedSession) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	defer s.b.step()()
	return s.Session.Renew(ctx, holds)
}

func (s *boundedSession) Cancel(ctx context.Context, name, id string) error {
	defer s.b.step()()
	return s.Session.Cancel(ctx, name, id)
}

// A sticky client uses no token that the store did not give: while that gives one at a time, each lease
// costs an exchange.
func TestStickyOfABoundedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := true
		store, n := counted(newBounded(t, memlock.New(), func() bool { return room }))
		c := client(t, store, nil)
		last, leases, exchanges := uint64(0), 200, int64(0)
		take := func() {
			before := n.Load()
			for range leases {
				l := lock(t, c, "x", sticky())
				if l.Token() <= last || l.GrantToken()%2 == 1 && l.Token() != l.GrantToken() {
					t.Fatalf("token %d after %d; that of the grant is %d", l.Token(), last, l.GrantToken())
				}
				last = l.Token()
				release(t, l)
			}
			exchanges = n.Load() - before
		}
		if take(); exchanges > 10 {
			t.Errorf("%d exchanges for %d leases while there is room", exchanges, leases)
		}
		room = false
		take() // what is left of the last block
		if take(); exchanges != int64(2*leases) {
			t.Errorf("%d exchanges for %d leases while there is no room; want 2 for each", exchanges, leases)
		}
		l := lock(t, c, "x", sticky())
		if h := must(c.Inspect(t.Context(), "x"))(t).Holders; len(h) != 1 || h[0].Tokens != 1 {
			t.Errorf("holders %+v; want one with one token", h)
		}
		release(t, l)
		room = true
		take()
		if take(); exchanges > 10 {
			t.Errorf("%d exchanges for %d leases when there is room again", exchanges, leases)
		}
	})
}

// A grant with one token is not passed on: the line asks the store for each lease, and is served also
// when another client waits.
func TestPassesOfABoundedStore(t *testing.T) {
	for _, room := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store, n := counted(newBounded(t, memlock.New(), func() bool { return room }))
			c, other := client(t, store, nil), client(t, store, nil)
			held := lock(t, other, "x")
			line := queue(t, c, 20)
			behind := queue(t, other, 1)
			before := n.Load()
			release(t, held)
			last, got := held.Token(), 0
			for got < len(line) || behind[0] != nil {
				next := behind[0]
				var l *holdfast.Lease
				if got < len(line) {
					next = line[got]
				}
				synctest.Wait()
				select {
				case l = <-next:
					got++
				case l = <-behind[0]:
					behind[0] = nil
				}
				if l.Token() <= last || l.GrantToken()%2 == 1 && l.Token() != l.GrantToken() || l.Err() != nil {
					t.Fatalf("token %d after %d, %v; that of the grant is %d", l.Token(), last, l.Err(), l.GrantToken())
				}
				last = l.Token()
				release(t, l)
			}
			if exchanges := n.Load() - before; (exchanges > int64(len(line))) == room {
				t.Errorf("%d exchanges for a line of %d; room: %v", exchanges, len(line), room)
			}
		})
	}
}

// A lease of a grant with one token, and one that a block was passed on to, are taken up by their tickets.
func TestTicketOfABoundedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := false
		store := newBounded(t, memlock.New(), func() bool { return room })
		c, other := client(t, store, nil), client(t, store, nil)
		for _, room = range []bool{false, true} {
			takeX(t, c, sticky())
			l := lock(t, c, "x", sticky())
			if (l.Token() == l.GrantToken()) == room {
				t.Fatalf("token %d of the grant %d; room: %v", l.Token(), l.GrantToken(), room)
			}
			text := must(l.Ticket())(t)
			l2 := must(other.Resume(t.Context(), text))(t)
			if l2.Token() != l.Token() || l2.GrantToken() != l.GrantToken() {
				t.Errorf("tokens %d and %d; want %d and %d", l2.Token(), l2.GrantToken(), l.Token(), l.GrantToken())
			}
			release(t, l2)
			_ = l.Release() // the other client has its grant
		}
	})
}
