package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// withoutTwo takes the name x for a, with a minimum hold of an hour, while server 2 is away. here is server 2.
func withoutTwo(t *testing.T) (w *world, s *session, here member, h driver.Hold) {
	w, s = three(t)
	here = s.endpoints[2].at()
	put(s.endpoints[2], down{here})
	return w, s, here, grantedAtTwo(t, w, s)
}

// TestClaimBelowTheToken: server 2 is away when the name is released. When it is back, it keeps the name after the
// release of a later grant, under a larger token. That must stay.
func TestClaimBelowTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, here, h := withoutTwo(t)
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		put(s.endpoints[2], here)
		w.keepsFor(s, 2, "c", 2*time.Hour)
		time.Sleep(30 * time.Second)
		if !w.keeps(2, "c") {
			t.Error("server 2 does not keep the name for the later grant")
		}
	})
}

// TestServerKeptForAnOlderGrant: server 2 keeps the name for a grant that was released, under a token above the
// holder's. The holder has a majority now, so it must get the server.
func TestServerKeptForAnOlderGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, here, h := withoutTwo(t)
		time.Sleep(time.Second)
		put(s.endpoints[2], here)
		w.keepsFor(s, 2, "c", time.Hour)
		for range 2 {
			renews(t, s, s.endpoints[2], h)
		}
		time.Sleep(time.Second)
		if n := w.has("a"); n != 3 {
			t.Errorf("%d servers have granted the request", n)
		}
	})
}

// TestKeptAfterAnOlderGrant: the same, and the server comes back after the release. It keeps the name for the
// request that had the majority.
func TestKeptAfterAnOlderGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, here, h := withoutTwo(t)
		time.Sleep(time.Second)
		put(s.endpoints[2], here)
		w.keepsFor(s, 2, "c", time.Hour)
		put(s.endpoints[2], down{here})
		renews(t, s, s.endpoints[2], h)
		if err := s.Release(t.Context(), h, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		put(s.endpoints[2], here)
		time.Sleep(5 * time.Second)
		if !w.keeps(2, "a") {
			t.Error("server 2 does not keep the name")
		}
	})
}

// slow is a server that a request reaches after two seconds.
type slow struct{ member }

func (m slow) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	time.Sleep(2 * time.Second)
	return m.member.Ask(ctx, req, propose)
}

// TestClaimAfterABreak: an operator ends a grant right after its renewal, while a request is on its way to server 2.
// Meanwhile another request gets the lock and releases it. Server 2 must keep the name for that: it is newer.
func TestClaimAfterABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, here, h := withoutTwo(t)
		put(s.endpoints[2], slow{here})
		renews(t, s, s.endpoints[2], h)
		synctest.Wait()
		put(s.endpoints[2], here)
		w.keepsFor(s, 2, "b", time.Hour)
		w.mu.Lock()
		w.servers[0].drop()
		w.servers[1].drop()
		w.mu.Unlock()
		time.Sleep(3 * time.Second)
		if !w.keeps(2, "b") {
			t.Error("server 2 does not keep the name for the later grant")
		}
	})
}

// TestRenewalAfterTheLease: the answers to a renewal come when the lease is over. Another request may have had a
// majority since, so the session asks no other server for the grant.
func TestRenewalAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		here := s.endpoints[2].at()
		put(s.endpoints[2], down{here})
		req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Lease: s.ttl / 20}
		reply, err := s.Acquire(t.Context(), req)
		if err != nil || reply.Token == 0 {
			t.Fatal(reply, err)
		}
		time.Sleep(time.Second) // the session has asked once more
		put(s.endpoints[2], here)
		for _, p := range s.endpoints[:2] {
			put(p, lateRenewal{p.at(), s.ttl / 20})
		}
		s.endpoints[2].slow.Store(0)
		h := driver.Hold{Name: "x", ID: "a", Token: reply.Token, Lease: s.ttl / 20}
		if changes, err := s.Renew(t.Context(), []driver.Hold{h}); err != nil || len(changes) != 0 {
			t.Fatal(changes, err)
		}
		time.Sleep(time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.servers[2].token != 0 {
			t.Error("server 2 has granted the request")
		}
	})
}

// lateRenewal is a server whose answers to renewals take so long.
type lateRenewal struct {
	member
	late time.Duration
}

func (m lateRenewal) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	changes, err := m.member.Renew(ctx, holds)
	time.Sleep(m.late)
	return changes, err
}

// TestSurpassed: a later majority includes one of the servers that proved the grant. It may be the one whose clock is
// behind. Only what is known of the clocks at the time of the proof counts.
func TestSurpassed(t *testing.T) {
	seconds := func(n uint64) uint64 { return n * 1e6 }
	for name, test := range map[string]struct {
		votes  []int // the servers that proved the grant
		change func(*clocks, *request)
		want   uint64
	}{
		"0 and 1":  {[]int{0, 1}, nil, seconds(90)},
		"0 and 2":  {[]int{0, 2}, nil, seconds(100)},
		"all":      {[]int{0, 1, 2}, nil, seconds(100)},
		"one":      {[]int{0}, nil, 7},
		"slack":    {[]int{0, 1}, func(c *clocks, _ *request) { c.slack = time.Second }, seconds(89)},
		"exchange": {[]int{0, 1}, func(c *clocks, _ *request) { c.views[1].hi += time.Second }, seconds(89)},
		"drift":    {[]int{0, 1}, func(c *clocks, _ *request) { c.views[1].at += driftRate * time.Second }, seconds(89)},
		"doubted":  {[]int{0, 1}, func(c *clocks, _ *request) { c.views[1].trust = doubted }, 7},
		"unseen":   {[]int{0, 1}, func(c *clocks, _ *request) { c.views[1].at = 0 }, 7},
		"a gap":    {[]int{0, 1}, func(c *clocks, _ *request) { c.views[1].from = 11 * time.Second }, 7},
		"older":    {[]int{0, 1}, func(_ *clocks, r *request) { r.votes[1].answered-- }, 7},
		"shorter":  {[]int{0, 1}, func(_ *clocks, r *request) { r.votes[1].until-- }, 7},
		"regained": {[]int{0, 1}, func(_ *clocks, r *request) { r.votes[1].firm = false }, 7},
	} {
		t.Run(name, func(t *testing.T) {
			b := &Backend{quarantine: modelQuarantine, servers: []*server{{}, {}, {}}}
			b.agree()
			b.clocks.slack = 0
			s := &session{b: b, endpoints: make([]*endpoint, 3), clock: newClock(3, time.Second)}
			s.clock.start = b.clocks.start
			r := newRequest(&driver.Request{Name: "x", ID: "a"}, 3)
			proof := term{stamp: 1, sent: 10 * time.Second, lease: time.Minute}
			for i, clock := range []time.Duration{100, 90, 101} {
				v := &b.clocks.views[i]
				v.lo, v.hi, v.at = (clock-10)*time.Second, (clock-10)*time.Second, proof.sent
			}
			for _, i := range test.votes {
				r.granted(i, proof, 7)
			}
			r.holds(7, proof, proof.sent)
			if test.change != nil {
				test.change(b.clocks, r)
			}
			if got := s.surpassed(r); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}

// TestKeptUnderTheAgreedToken: a server had granted the request before a majority did, under a token of its own. After
// the release it keeps the name under the token that the majority agreed on: a claim by an older request ends a name
// that is kept under a smaller one.
func TestKeptUnderTheAgreedToken(t *testing.T) {
	for _, name := range []string{"released", "released later", "without an answer"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := three(t)
				req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, MinHold: time.Hour}
				reply, err := s.Acquire(t.Context(), req)
				if err != nil || reply.Token == 0 {
					t.Fatal(reply, err)
				}
				h := driver.Hold{Name: "x", ID: "a", Token: reply.Token}
				time.Sleep(time.Second) // the third server has granted it, too
				r := s.find(h.ID)
				w.mu.Lock()
				v := w.servers[r.order[2]]
				v.token -= 1000
				early := v.token
				w.mu.Unlock()
				r.mu.Lock()
				r.votes[r.order[2]].token = early
				if name == "without an answer" {
					r.votes[r.order[2]].state = waiting
				}
				r.mu.Unlock()
				p := s.endpoints[r.order[2]]
				here := p.at()
				if name == "released later" {
					put(p, down{here})
				}
				if err := s.Release(t.Context(), h, 0); err != nil {
					t.Fatal(err)
				}
				put(p, here)
				time.Sleep(2 * time.Second)
				w.mu.Lock()
				defer w.mu.Unlock()
				if v.token < h.Token || v.held() {
					t.Errorf("the name is kept under %d, want %d", v.token, h.Token)
				}
			})
		})
	}
}

// claims is a server that counts claims.
type claims struct {
	member
	n atomic.Int32
}

func (m *claims) Claim(context.Context, string, string, int, uint64) error {
	m.n.Add(1)
	return nil
}

// TestClaimAfterTheLease: a request that has a place at server 2 claims that while its lease is proven, and not
// later: another request may have had a majority since.
func TestClaimAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := three(t)
		w.votesFor(s, 2, "c", 0, time.Hour)
		m := &claims{member: s.endpoints[2].at()}
		put(s.endpoints[2], m)
		grantedAtTwo(t, w, s)
		r := s.find("a")
		for n, later := range []time.Duration{0, 2 * s.ttl} {
			want := int32(1 - n)
			time.Sleep(later)
			before := m.n.Load()
			r.mu.Lock()
			r.votes[2].state = waiting
			s.claimAll(r, 0)
			r.mu.Unlock()
			synctest.Wait()
			if n := m.n.Load() - before; n != want {
				t.Errorf("%d claims after %v, want %d", n, later, want)
			}
		}
	})
}
