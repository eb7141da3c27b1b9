package zk

import "time"

// proof finds out since when the leader is known to have had a sign of the session. The package's
// documentation explains why an answer alone is no proof.
//
// Let δ be a quarter of the timeout, and thus at least half a tick. A server has answered a packet,
// so it had received it. More than δ after that answer, a request was sent that the leader
// answered. Then the server had reported the session to the leader, as of that packet.
type proof struct {
	at       time.Time // the session lives at least until a timeout after this
	contacts []contact // newer ones that the leader may not know of, in order
}

// contact is a packet that the server received.
type contact struct{ sent, answered time.Time }

// connected starts again with an answered connect request: the server asks the leader.
func (p *proof) connected(sent, answered time.Time) {
	p.at = sent
	p.contacts = append(p.contacts[:0], contact{sent, answered})
}

// answered records a request that the server answered; leader means that the leader did.
func (p *proof) answered(sent, answered time.Time, leader bool, timeout time.Duration) {
	delta := timeout / 4
	if leader {
		n := 0
		for n < len(p.contacts) && !p.contacts[n].answered.After(sent.Add(-delta)) {
			n++
		}
		if n > 0 {
			if t := p.contacts[n-1].sent; t.After(p.at) {
				p.at = t
			}
			p.contacts = append(p.contacts[:0], p.contacts[n:]...)
		}
	}
	// The latest, and one in each δ/16 before it: this bounds the list, however many requests there
	// are.
	t := contact{sent, answered}
	if n := len(p.contacts); n > 1 && p.contacts[n-1].answered.Sub(p.contacts[n-2].answered) < delta/16 {
		p.contacts[n-1] = t
	} else {
		p.contacts = append(p.contacts, t)
	}
}
