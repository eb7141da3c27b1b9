package redisson

import (
	"strings"
	"testing"
	"time"
)

// A holder in Go hears of forceUnlock at once, not at its next renewal, which is later than the test
// waits. The forced lock of another name costs it nothing.
func TestForceUnlockIsHeard(t *testing.T) {
	t.Parallel()
	if control {
		return // Redisson tells a holder nothing
	}
	const ttl = 10 * time.Minute // a third of it is longer than limit
	each(t, everywhere, func(w *world) {
		w.t.Parallel()
		forcer := w.actor(w.java(), "forcer", long)
		kinds := []string{"mutex", "fenced", "read", "write"}
		holders := map[string]*actor{}
		for _, kind := range kinds {
			holders[kind] = w.actor(w.ours(), kind, ttl)
			holders[kind].Do("lock", kind, w.name(kind))
		}
		for _, kind := range kinds {
			w.waiting(kind, w.name(kind), 1) // the holder listens
			began := time.Now()
			if done := forcer.Do("force", kind, w.name(kind)); done != "true" {
				w.t.Fatalf("%s: forceUnlock says %s", kind, done)
			}
			told := eventually(func() bool {
				holders[kind].Send("held")
				return strings.HasPrefix(holders[kind].Reply(), "lost")
			})
			if !told {
				w.t.Errorf("%s: the holder has not heard of its loss", kind)
			}
			w.t.Logf("%s: heard within %v", kind, time.Since(began).Round(time.Millisecond))
			delete(holders, kind)
			for other, a := range holders {
				if r := a.Do("held"); r != "" {
					w.t.Errorf("%s: %s after the end of %s", other, r, kind)
				}
			}
		}
	})
}
