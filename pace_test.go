package holdfast

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// paceStore is a store whose tokens are microseconds of a clock, and a client that asks it.
type paceStore struct {
	now  time.Duration // its clock
	last uint64
}

// ask asks for a large block for a client whose clock shows so much less, and uses it up, a token in half
// a microsecond. slow is how long the question is on its way. It returns how many tokens the block has.
func (s *paceStore) ask(p *pace, less, slow time.Duration) int {
	sent := s.now - less
	n := p.block(driver.MaxCallBackTokens, sent)
	s.now += slow
	s.last = max(uint64(s.now.Microseconds()), s.last+uint64(n))
	p.granted(s.last, sent)
	s.now += 50*time.Microsecond + time.Duration(n)*time.Microsecond/2
	return n
}

func (s *paceStore) ahead() time.Duration { return time.Duration(s.last)*time.Microsecond - s.now }

// Clients that take a name in turn let its tokens run ahead of the clock by about 20 ms each.
func TestPaceInTurn(t *testing.T) {
	const clients, turn, exchange = 4, 40 * time.Millisecond, 50 * time.Microsecond
	s := &paceStore{now: 1000 * time.Hour}
	var paces [clients]pace
	worst, tokens := time.Duration(0), 0
	for i := range 2000 {
		which := i % clients
		for end := s.now + turn; s.now < end; {
			tokens += s.ask(&paces[which], time.Duration(which)*time.Hour, exchange)
			worst = max(worst, s.ahead())
		}
	}
	if worst > (clients+1)*mostAhead {
		t.Errorf("%v ahead", worst)
	}
	if took := s.now - 1000*time.Hour; tokens < int(took.Microseconds())/2 {
		t.Errorf("only %d tokens in %v", tokens, took)
	}
}

// So they do however long that goes on.
func TestPaceInTurnForLong(t *testing.T) {
	for _, clients := range []int{2, 4} {
		s, start := &paceStore{now: 1000 * time.Hour}, 1000*time.Hour
		paces := make([]pace, clients)
		tokens := 0
		for i := 0; s.now < start+8*paceWindow; i++ {
			for end := s.now + paceWindow/100; s.now < end; {
				tokens += s.ask(&paces[i%clients], time.Duration(i%clients)*time.Hour, 50*time.Microsecond)
			}
			if most := time.Duration(clients+1) * mostAhead; s.ahead() > most {
				t.Fatalf("%v ahead after %v; want at most %v", s.ahead(), s.now-start, most)
			}
		}
		if took := s.now - start; tokens < int(took.Microseconds())*9/10 {
			t.Errorf("only %d tokens in %v", tokens, took)
		}
	}
}

// A question that was slow on its way, and a clock of the store that was set forward, make blocks small
// for a while only.
func TestPaceRecovers(t *testing.T) {
	const exchange = 50 * time.Microsecond
	s := &paceStore{now: 1000 * time.Hour}
	var p pace
	run := func(d time.Duration) (tokens int) {
		for end := s.now + d; s.now < end; {
			tokens += s.ask(&p, time.Hour, exchange)
		}
		return tokens
	}
	usual := run(time.Second)
	s.ask(&p, time.Hour, 300*time.Millisecond)
	run(time.Second)
	if n := run(time.Second); n < usual/2 {
		t.Errorf("%d tokens in a second; want about %d: a slow exchange was a second ago", n, usual)
	}
	less := time.Hour
	s.now, less = s.now+time.Hour, less+time.Hour // forward
	for end := s.now + 2*paceWindow; s.now < end; {
		s.ask(&p, less, exchange)
	}
	before := s.now
	tokens := 0
	for s.now < before+time.Second {
		tokens += s.ask(&p, less, exchange)
	}
	if tokens < usual/2 {
		t.Errorf("%d tokens in a second; want about %d: the clock was set forward long ago", tokens, usual)
	}
}

// However long a client takes a name as fast as it can, its tokens stay close to the store's clock, also if
// that runs slower than its own.
func TestPaceOfASlowClock(t *testing.T) {
	const exchange, ppm = 50 * time.Microsecond, 900
	s, start := &paceStore{now: 1000 * time.Hour}, 1000*time.Hour
	var p pace
	tokens := 0
	for s.now < start+3*paceWindow {
		tokens += s.ask(&p, time.Hour-(s.now-start)/1e6*ppm, exchange)
		if s.ahead() > 2*mostAhead {
			t.Fatalf("%v ahead after %v", s.ahead(), s.now-start)
		}
	}
	if most := int(3 * paceWindow / time.Microsecond); tokens < most*99/100 {
		t.Errorf("%d tokens; want about %d", tokens, most)
	}
}

// A client remembers the paces of a bounded number of names.
func TestPacesAreBounded(t *testing.T) {
	c := &Client{paces: map[string]*pace{}}
	for i := range 3 * maxPaces {
		c.paceOf(string(rune(i)), time.Duration(i)*time.Millisecond)
	}
	if n := len(c.paces); n > maxPaces {
		t.Errorf("%d paces", n)
	}
}
