package httpapi_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/httpapi"
)

// belief is what a program believes of one grant.
type belief struct {
	name  string
	token uint64
	got   time.Time // not later than this the store had the grant
	until time.Time // how long the program trusts it
}

// However late requests arrive and answers return, and whoever falls silent: no program trusts a
// lease at a time at which a later one is granted.
func TestTrustNeverOverlaps(t *testing.T) {
	for seed := range uint64(5) {
		inBubble(t, nil, func(t *testing.T, _ *holdfast.Client, _ *httpapi.Server, p *program) {
			var mu sync.Mutex
			var all []*belief
			var wg sync.WaitGroup
			for i := range uint64(6) {
				q, random := p.other(), rand.New(rand.NewPCG(seed, i))
				wg.Go(func() { silent(q, random, func(b *belief) { mu.Lock(); all = append(all, b); mu.Unlock() }) })
			}
			wg.Wait()
			for _, a := range all {
				for _, b := range all {
					if a.name == b.name && b.token > a.token && b.got.Before(a.until) {
						t.Errorf("seed %d: token %d of %s was granted %v before the trust in %d ended", seed, b.token, b.name,
							a.until.Sub(b.got), a.token)
					}
				}
			}
			if len(all) < 20 {
				t.Errorf("seed %d: only %d grants", seed, len(all))
			}
		})
	}
}

// silent is a program on a slow network that now and then falls silent while it has a lock.
func silent(p *program, random *rand.Rand, note func(*belief)) {
	delay := func() { time.Sleep(time.Duration(random.Int64N(int64(ttl / 4)))) }
	send := func(path string, body any) (a *answer, sent, handled time.Time) {
		sent = time.Now()
		delay()
		a, handled = p.call(path, body), time.Now()
		delay()
		return a, sent, handled
	}
	for n := 1; n <= 12; n++ {
		body := J{"request": n, "name": fmt.Sprint("name", random.IntN(2))}
		a, sent, handled := send("acquire", body)
		for a.status == 202 {
			a, sent, handled = send("acquire", body)
		}
		switch a.status {
		case 200:
		case 410: // the session is over
			p.session = p.other().session
			continue
		default:
			p.t.Errorf("%+v", a)
			return
		}
		token, _ := strconv.ParseUint(a.Token, 10, 64)
		b := &belief{body["name"].(string), token, handled, sent.Add(time.Duration(a.Trusted) * time.Millisecond)}
		for range random.IntN(4) {
			time.Sleep(time.Duration(random.Int64N(int64(ttl / 3))))
			x, sent, _ := send("sessions/heartbeat", J{"leases": []string{a.Lease}})
			if len(x.Leases) == 1 && x.Leases[0].Error == nil {
				if until := sent.Add(time.Duration(x.Leases[0].Trusted) * time.Millisecond); until.After(b.until) {
					b.until = until
				}
			}
		}
		if random.IntN(3) > 0 {
			if now := time.Now(); now.Before(b.until) {
				b.until = now
			}
			send("release", J{"lease": a.Lease})
		} else {
			time.Sleep(2 * ttl) // it falls silent
		}
		note(b)
	}
}
