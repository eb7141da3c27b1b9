package cli

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// The client gives the name back when a lease of --lease ends. KILL comes earlier, also to a command
// that began late, and so the processes of the command have time to end.
func TestKillBeforeTheEndOfALease(t *testing.T) {
	const ttl = 10 * time.Second
	for _, lease := range []time.Duration{time.Second, 4 * time.Second, 25 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c, err := holdfast.New(t.Context(), memlock.New(), &holdfast.Config{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close(t.Context()) }()
			m, err := holdfast.LockAll(t.Context(), c.Mutex("x", holdfast.MaxHold(lease)))
			if err != nil {
				t.Fatal(err)
			}
			h := &hold{lease: m, parts: m.Leases()}
			kill, runs := h.endsBefore(&taskOptions{}, ttl, 0, lease)
			spare := min(lease, ttl) / 20
			if kill <= 0 || runs < lease/2 || runs+kill > lease-spare {
				t.Errorf("--lease %v: TERM after %v, and KILL %v later", lease, runs, kill)
			}
			began := time.Now()
			for left := h.left(); left > 0; left = h.left() {
				time.Sleep(left)
			}
			if left := m.Left(); m.Err() != nil || left < spare {
				t.Errorf("--lease %v: %v after KILL: %v, %v left; want %v", lease, time.Since(began), m.Err(), left, spare)
			}
		})
	}
}
