package observe

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

// Clients knows the clients that are open, for gauges: what they hold and wait for is read when it is
// asked for, so it is right whatever events were dropped. The zero value is ready to use, and safe for
// concurrent use.
type Clients struct {
	mu      sync.Mutex
	open    map[*holdfast.Client]struct{}
	stores  map[string]uint64 // kinds of store that there were, and what their closed clients dropped
	classes map[loadKey]bool  // those that there were; true: elections among them
}

// Observer returns the part of an Observer that tells c which clients are open.
func (c *Clients) Observer() *holdfast.Observer {
	return &holdfast.Observer{Opened: c.add, Closed: c.remove}
}

func (c *Clients) add(client *holdfast.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*holdfast.Client]struct{}{}
	}
	c.open[client] = struct{}{}
}

func (c *Clients) remove(client *holdfast.Client) {
	h := client.Health()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.open[client]; ok {
		delete(c.open, client)
		c.store(h.Store)
		c.stores[h.Store] += h.Dropped
	}
}

// store notes a kind of store. Called with c.mu held.
func (c *Clients) store(name string) {
	if c.stores == nil {
		c.stores = map[string]uint64{}
	}
	c.stores[name] += 0
}

// Each calls f for each open client.
func (c *Clients) Each(f func(*holdfast.Client)) {
	c.mu.Lock()
	open := slices.Collect(maps.Keys(c.open))
	c.mu.Unlock()
	for _, client := range open {
		f(client)
	}
}

// Load is what the open clients hold and wait for, of one class of names.
type Load struct {
	Store, Class string
	Mode         holdfast.Mode

	Held, Waiting      int
	Permits            int           // held, of semaphores
	Leading            int           // held, by elections
	Led                bool          // it was Leading when it was read, now or earlier
	HeldFor, WaitedFor time.Duration // by the oldest
}

// StoreLoad is how the open clients of one kind of store are.
type StoreLoad struct {
	Store            string
	Clients, Healthy int
	Offered          int // leases that were handed off, and not adopted yet

	// Unanswered is the longest time since the store answered a client that holds or waits for something.
	// It is up to a third of the TTL if all is well.
	Unanswered time.Duration

	Dropped uint64 // calls of Loggers and Observers since the program began, by closed clients too
}

type loadKey struct {
	store, class string
	mode         holdfast.Mode
}

// Read returns what the open clients hold and wait for. What was there once stays, with zeros. Both
// lists are in order.
func (c *Clients) Read(classes *Classes) (loads []Load, stores []StoreLoad) {
	all, perStore := map[loadKey]*Load{}, map[string]*StoreLoad{}
	c.Each(func(client *holdfast.Client) {
		h := client.Health()
		if errors.Is(h.Err, holdfast.ErrClosed) {
			c.remove(client) // the call of Closed may have been dropped
			return
		}
		s := perStore[h.Store]
		if s == nil {
			s = &StoreLoad{Store: h.Store}
			perStore[h.Store] = s
		}
		s.add(&h)
		of := func(name string, mode holdfast.Mode) *Load {
			k := loadKey{h.Store, classes.Of(name), mode}
			if all[k] == nil {
				all[k] = &Load{Store: k.store, Class: k.class, Mode: mode}
			}
			return all[k]
		}
		for _, l := range client.Held() {
			of(l.Name, l.Mode).addHeld(&l)
		}
		for _, w := range client.Wanted() {
			l := of(w.Name, w.Mode)
			l.Waiting++
			l.WaitedFor = max(l.WaitedFor, time.Since(w.Since))
		}
	})
	c.keep(all, perStore)
	for _, l := range all {
		loads = append(loads, *l)
	}
	for _, s := range perStore {
		stores = append(stores, *s)
	}
	slices.SortFunc(loads, func(a, b Load) int {
		return cmp.Or(cmp.Compare(a.Store, b.Store), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Mode, b.Mode))
	})
	slices.SortFunc(stores, func(a, b StoreLoad) int { return cmp.Compare(a.Store, b.Store) })
	return loads, stores
}

// keep notes what is there, and adds what was there before.
func (c *Clients) keep(all map[loadKey]*Load, perStore map[string]*StoreLoad) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.classes == nil {
		c.classes = map[loadKey]bool{}
	}
	for k, l := range all {
		c.classes[k] = c.classes[k] || l.Leading > 0
	}
	for k, led := range c.classes {
		if all[k] == nil {
			all[k] = &Load{Store: k.store, Class: k.class, Mode: k.mode}
		}
		all[k].Led = led
	}
	for name := range perStore {
		c.store(name)
	}
	for name, dropped := range c.stores {
		if perStore[name] == nil {
			perStore[name] = &StoreLoad{Store: name}
		}
		perStore[name].Dropped += dropped
	}
}

func (s *StoreLoad) add(h *holdfast.Health) {
	s.Clients++
	if h.Err == nil {
		s.Healthy++
	}
	s.Offered += h.Offered
	s.Dropped += h.Dropped
	if h.Held+h.Waiting+h.Offered > 0 {
		s.Unanswered = max(s.Unanswered, time.Since(h.Answered))
	}
}

func (l *Load) addHeld(h *holdfast.HeldLock) {
	l.Held++
	l.HeldFor = max(l.HeldFor, time.Since(h.Since))
	if h.Mode == holdfast.ModePermits {
		l.Permits += h.Permits
	}
	if h.Op == OpCampaign {
		l.Leading++
	}
}

// OpCampaign is the Op of elections in the events of an Observer.
const OpCampaign = "campaign"

// ExchangeOutcome returns how an exchange that ended with err is counted: "ok"; "refused", if the
// store has answered with an error; or "failed", if it has not answered, or could not serve.
func ExchangeOutcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, driver.ErrClosed): // the session is over
		return "failed"
	case driver.IsFinal(err) || driver.IsOver(err):
		return "refused"
	}
	return "failed"
}

// Ended returns how a lease has ended, in one word: "released", "handed_off" or "lost".
func Ended(e *holdfast.LeaseEnd) string {
	switch {
	case e.Lost():
		return "lost"
	case e.Reason == holdfast.ReasonHandedOff:
		return "handed_off"
	}
	return "released"
}
