package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestAdoptedMinimum: servers 0 and 1 have granted a lock with a minimum hold, and another session adopts it.
// Server 2 comes back later. Server 1 misses the release. The session then tells it what it has missed, which must
// not end the minimum hold: then a majority would be free.
func TestAdoptedMinimum(t *testing.T) {
	t.Parallel()
	const minimum = 10 * time.Minute
	g := start(t, 3, time.Minute+time.Second)
	ways := g.proxies()
	a, b := open(t, g.backend(ways.addrs()), "a", time.Minute), open(t, g.backend(ways.addrs()), "b", time.Minute)
	c := open(t, g.backend(g.addrs()), "c", time.Minute)
	other := get(t, b, try("y", "b-y"))
	g.everywhere(t, "y", renewals(t, b, other))
	ways[2].Refuse()
	r := try("x", "a-x")
	r.MinHold = minimum
	h := get(t, a, r)
	if err := b.Adopt(within(t), h, "b-x", ""); err != nil {
		t.Fatal(err)
	}
	ways[2].Heal()
	ways[1].Refuse()
	if err := b.Release(within(t), driver.Hold{Name: "x", ID: "b-x", Token: h.Token}, 0); err != nil {
		t.Fatal(err)
	}
	ways[1].Heal()
	for n := range 40 {
		renewals(t, b, other)() // sends what is pending
		time.Sleep(50 * time.Millisecond)
		if reply, _ := c.Acquire(within(t), try("x", fmt.Sprint("c-", n))); reply.Token != 0 {
			t.Fatal("granted within the minimum hold")
		}
	}
}

// TestGrantedAgainWithinTheMinimum: one server is cut off for longer than a TTL, so the lease ends there, and the
// minimum hold stays. When it is back, it grants the request again, and after the release it keeps the name no
// longer than the others.
func TestGrantedAgainWithinTheMinimum(t *testing.T) {
	t.Parallel()
	const ttl, minimum = 10 * time.Second, 10 * time.Minute
	g := start(t, 3, ttl+time.Second)
	ways := g.proxies()
	a := open(t, g.backend(ways.addrs()), "a", ttl)
	r := try("x", "a-x")
	r.MinHold = minimum
	h := get(t, a, r)
	renew := renewals(t, a, h)
	g.everywhere(t, "x", renew)
	first := h.Token
	ways[2].Refuse()
	g.shows(t, 2, "x", "the lease over", func(r driver.Record) bool {
		return len(r.Holders) == 1 && r.Holders[0].Kept
	}, renew)
	ways[2].Heal()
	g.shows(t, 2, "x", "the grant again", func(r driver.Record) bool {
		return len(r.Holders) == 1 && !r.Holders[0].Kept && r.Waiting == 0 && r.Holders[0].Token > first
	}, renew)
	if err := a.Release(within(t), h, 0); err != nil {
		t.Fatal(err)
	}
	for i := range g.servers {
		g.shows(t, i, "x", "the name kept", func(r driver.Record) bool {
			left := time.Duration(0)
			if len(r.Holders) == 1 && r.Holders[0].Kept {
				left = r.Holders[0].Left
			}
			return left > minimum/2 && left <= minimum
		}, func() {})
	}
}

// TestAdoptionAtAFarServer: a lock with a minimum hold is adopted, and one server answers late. The adoption must
// succeed there, although a majority has done it before.
func TestAdoptionAtAFarServer(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute+time.Second)
	ways := g.proxies()
	a, b := open(t, g.backend(ways.addrs()), "a", time.Minute), open(t, g.backend(ways.addrs()), "b", time.Minute)
	r := try("x", "a-x")
	r.MinHold = 10 * time.Minute
	h := get(t, a, r)
	other := get(t, b, try("y", "b-y"))
	g.everywhere(t, "x", renewals(t, a, h))
	g.everywhere(t, "y", renewals(t, b, other))
	ways[2].Delay(150 * time.Millisecond)
	if err := b.Adopt(within(t), h, "b-x", ""); err != nil {
		t.Fatal(err)
	}
	g.shows(t, 2, "x", "the adopter", func(r driver.Record) bool {
		return len(r.Holders) == 1 && r.Holders[0].ID == "b-x" && r.Waiting == 0
	}, func() {})
}
