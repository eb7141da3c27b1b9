package zk

import "time"

// proof finds out how long ago the leader is known to have heard of the session. See the
// package's documentation for why an answer alone does not tell.
//
// With δ, a quarter of the timeout, being at least half a tick: when a server has answered
// a packet (so it had it), and later than δ after that was sent a request which the leader
// answered, then the server had told the leader of the packet.
type proof struct {
	at      time.Time // the session lives until a timeout after this, at least
	touches []touch   // newer ones, that the leader may not know of; in order
}

// touch is a packet that the server had.
type touch struct{ sent, answered time.Time }

// connected starts anew with an answered connect request: the server asks the leader.
func (p *proof) connected(sent, answered time.Time) {
	p.at = sent
	p.touches = append(p.touches[:0], touch{sent, answered})
}

// answered takes note of a request that the server answered, or the leader did.
func (p *proof) answered(sent, answered time.Time, leader bool, timeout time.Duration) {
	delta := timeout / 4
	if leader {
		n := 0
		for n < len(p.touches) && !p.touches[n].answered.After(sent.Add(-delta)) {
			n++
		}
		if n > 0 {
			if t := p.touches[n-1].sent; t.After(p.at) {
				p.at = t
			}
			p.touches = append(p.touches[:0], p.touches[n:]...)
		}
	}
	// The latest, and before it one in each δ/16: so the list stays short however many
	// requests there are.
	t := touch{sent, answered}
	if n := len(p.touches); n > 1 && p.touches[n-1].answered.Sub(p.touches[n-2].answered) < delta/16 {
		p.touches[n-1] = t
	} else {
		p.touches = append(p.touches, t)
	}
}
