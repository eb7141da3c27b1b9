package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

func (m *simMember) Yield(ctx context.Context, h driver.Hold, to string, place uint64, block int) (
	<-chan uint64, uint64, error) {
	m.mu.Lock()
	a := m.asks[h.ID]
	if a != nil {
		a.wake.Drain()
		a.held, a.waits, a.early = false, false, h.Token
	}
	m.mu.Unlock()
	err := m.exchange(ctx, func(v *simServer) error {
		if err := v.owned(h.ID, h.Token); err != nil {
			return err
		}
		if v.token != h.Token {
			return driver.ErrTaken
		}
		hold := v.holder.hold
		v.drop()
		if i := v.find(to); i >= 0 {
			p := v.queue[i]
			v.queue = slices.Delete(v.queue, i, i+1)
			v.give(p, p.deadline, 0)
			p.who.push(p.id, v.token)
		}
		if place == 0 {
			v.seq++
			place = v.seq
		}
		if m.w.flaw == yieldsOne {
			block = 1
		}
		v.join(simPlace{h.ID, place, block, v.till(time.Time{}, h.Lease), hold, m})
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	m.mu.Lock()
	cancelled := a == nil || m.asks[h.ID] != a
	if !cancelled {
		a.waits = true
		if a.early > h.Token {
			a.wake.Put(a.early)
		}
		a.early = h.Token
	}
	m.mu.Unlock()
	if cancelled {
		m.undo(h.ID)
		return nil, 0, driver.ErrUncertain
	}
	return a.wake, place, nil
}
