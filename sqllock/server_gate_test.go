package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Many callers for a few names, and for hundreds of names with locked rows, keep nobody else out.
func TestGateHasPlaceForOthers(t *testing.T) {
	g := newGate(requestsAtOnce)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	fill := func(name string) {
		for range 6 {
			all.Go(func() {
				if p, err := g.enter(ctx, name); err == nil {
					<-ctx.Done()
					p.leave()
				}
			})
		}
	}
	for i := range 300 { // a caller has waited for each of these rows in vain
		name := fmt.Sprint("locked-", i)
		p, err := g.enter(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		p.note(true, false)
		if i%2 == 0 {
			fill(name)
		}
		p.leave()
		if i%2 != 0 { // now nobody asks for it
			fill(name)
		}
	}
	for i := range 8 {
		fill(fmt.Sprint("busy-", i))
	}
	taken := func() (busy, stuck int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.busy, g.stuck
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) { // the callers have begun
		if _, stuck := taken(); stuck == g.stuckRoom {
			break
		}
		if time.Now().After(end) {
			t.Fatal("stuck names never took all places that they may take")
		}
	}
	for range 100 {
		short, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		p, err := g.enter(short, "free")
		cancel()
		if err != nil {
			t.Fatalf("a name that nobody else uses: %v", err)
		}
		p.leave()
	}
	if busy, stuck := taken(); busy > g.room || stuck != g.stuckRoom {
		t.Errorf("%d of %d places are taken, and %d of %d for stuck names", busy, g.room, stuck, g.stuckRoom)
	}
	stop()
	all.Wait()
	empty(t, g)
}

// A name is no longer stuck after a caller has reached its row.
func TestGateNameRecovers(t *testing.T) {
	g := newGate(8)
	enter := func() *pass {
		t.Helper()
		p, err := g.enter(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := enter()
	p.note(true, false)
	if err := p.again(t.Context()); err != nil || !p.stuck {
		t.Fatalf("again = %v, in a place for stuck names: %v", err, p.stuck)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.enter(over, "n"); !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("second caller of a stuck name: %v; want it to wait", err)
	}
	p.note(false, true)
	p.leave()
	if p, q := enter(), enter(); p.stuck || q.stuck {
		t.Error("the name is still stuck")
	} else {
		p.leave()
		q.leave()
	}
	empty(t, g)
}

// In any sequence of calls, a gate never admits more callers than it has places, and forgets none.
func TestGateAtRandom(t *testing.T) {
	g := newGate(8)
	var all sync.WaitGroup
	for k := range 40 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(k)))
			for range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(3) == 0 {
					time.AfterFunc(time.Duration(r.IntN(100))*time.Microsecond, cancel)
				}
				name := ""
				if n := r.IntN(8); n > 0 {
					name = fmt.Sprint(n)
				}
				p, err := g.enter(ctx, name)
				for err == nil && r.IntN(3) > 0 {
					p.note(r.IntN(4) == 0, r.IntN(2) == 0)
					err = p.again(ctx)
				}
				g.mu.Lock()
				if g.busy > g.room || g.stuck > g.stuckRoom || g.busy < 0 || g.stuck < 0 {
					t.Errorf("%d of %d and %d of %d are inside", g.busy, g.room, g.stuck, g.stuckRoom)
				}
				g.mu.Unlock()
				p.leave()
				p.leave() // does nothing
				cancel()
			}
		})
	}
	all.Wait()
	empty(t, g)
}

func empty(t *testing.T, g *gate) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, l := range g.lanes {
		if l.inside > 0 || l.waiting.Len() > 0 || !l.stuck {
			t.Errorf("the lane of %q still exists: %d inside, %d wait, stuck %v", name, l.inside, l.waiting.Len(), l.stuck)
		}
	}
	if g.busy != 0 || g.stuck != 0 || g.first.Len()+g.more.Len()+g.again.Len() != 0 {
		t.Errorf("%d and %d are inside; %d, %d and %d lanes wait", g.busy, g.stuck, g.first.Len(), g.more.Len(),
			g.again.Len())
	}
}

// wary is a dialect that marks each statement as brief or not.
type wary struct{ nowhere }

func (wary) Transactions() Transactions { return Transactions{Begin: []string{"BEGIN"}} }

func (wary) Bounded(text string, brief bool) string { return fmt.Sprint(text, " brief=", brief) }

// recorded is a sqlConn that records how a transaction begins.
type recorded struct {
	sqlConn
	texts []string
}

func (h *recorded) begin(_ context.Context, t Transactions) (*transaction, error) {
	h.texts = t.Begin
	return &transaction{}, nil
}

// While many names have locked rows, a transaction tells the server not to wait long.
func TestTransactionsOfStuckNamesAreBrief(t *testing.T) {
	b := &Server{d: wary{}}
	for _, brief := range []bool{false, true} {
		h := &recorded{}
		if _, err := b.begin(context.WithValue(t.Context(), passKey{}, &pass{brief: brief}), h); err != nil {
			t.Fatal(err)
		}
		want := "BEGIN"
		if brief {
			want = "BEGIN brief=true"
		}
		if len(h.texts) != 1 || h.texts[0] != want {
			t.Errorf("brief %v: begun by %q; want %q", brief, h.texts, want)
		}
	}
}
