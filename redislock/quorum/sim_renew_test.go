package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

func (m *simMember) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	holds = slices.Clone(holds)
	var changes []driver.Change
	err := m.exchange(ctx, func(v *simServer) error {
		for k, h := range holds {
			switch i := v.find(h.ID); {
			case v.held() && v.holder.id == h.ID:
				v.end = v.till(v.end, h.Lease)
				if h.Token != v.token {
					changes = append(changes, driver.Change{Index: k, State: driver.Granted, Token: v.token})
				}
			case h.Token == 0 && i >= 0:
				v.queue[i].deadline = v.till(v.queue[i].deadline, h.Lease)
				changes = append(changes, driver.Change{Index: k, State: driver.Waiting, Retry: time.Until(v.end), Ahead: i})
			default:
				changes = append(changes, driver.Change{Index: k, State: driver.Gone})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range changes {
		if c := &changes[i]; c.State == driver.Granted && c.Token <= m.limits[holds[c.Index].ID] {
			c.State, c.Token = driver.Unknown, 0
		}
	}
	return changes, nil
}

func (m *simMember) Downgrade(context.Context, driver.Hold) error { return driver.ErrInvalid }

func (m *simMember) AdoptMinimum(context.Context, driver.Hold, string, string) (time.Duration, error) {
	return 0, driver.ErrInvalid
}

func (m *simMember) Close(context.Context) error { return nil }
