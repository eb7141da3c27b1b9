package holdfast

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Config adjusts a client. The zero value, or nil, is ready to use.
type Config struct {
	// TTL is the lease duration: the store may give the locks of a client to others when it has
	// received no renewal for this long. The client renews every third of it. From 100 ms to 24 h;
	// default 15 s. A long TTL survives long pauses and outages; a short one frees a dead holder's
	// locks soon.
	TTL time.Duration

	// Margin is how much earlier than the store's deadline the client stops trusting a lease. It
	// allows for clocks that run at different speeds. At most TTL/2; default TTL/10.
	Margin time.Duration

	// Program names this program to operators and waiters; default: the executable's name.
	Program string

	// Labels are shown to operators and waiters with every lease of this client. No key is empty.
	Labels map[string]string

	// Command is the command line of this program, for operators. Everybody who may read the store can
	// see it, so leave it empty if its arguments may contain secrets. Default: none.
	Command string

	// Logger gets a warning for each lost lease. For an outage of the store it gets a warning when
	// the first renewal fails, then one a minute (a TTL, if that is longer), and one when the store
	// has answered again. If nothing is left to renew, that is known when the client next asks for a
	// lock. A separate goroutine calls the Logger. If it is too slow, warnings are dropped, and the
	// next one has their number. Default: none.
	Logger *slog.Logger

	// Observer receives events; see there.
	Observer *Observer

	// History is how many entries the store keeps about each name: who had the lock, when, for how
	// long, and how it ended (Client.History). Each grant and each end is an exchange more, in the
	// background. The Logger gets a warning if the store does not take them. 0 to 1,000; default 0:
	// this client adds nothing.
	History int

	// Profiles receive the stacks of calls that hold or wait; see there. Default: none.
	Profiles Profiles

	// Passes is how often in a row the calls of this client may pass a mutex or a write lock among
	// themselves, without an exchange with the store: at most so often, and for PassFor after the store
	// has granted it. So other clients wait for so much longer, and for the call that has the lock then.
	// Each pass has its own, larger fencing token. Calls that wait together for a read lock share a grant,
	// and its token. At most 999; default 512; a negative number turns both off, as the option Fair does
	// for one lock. Not every store has them (docs/guarantees.md).
	Passes int

	// PassFor is for how long after a grant the lock may be passed on; default 10 ms, and never longer
	// than a tenth of the TTL.
	PassFor time.Duration
}

// check returns an ErrInvalid that says what is wrong with cfg for a client with this TTL, or nil.
func (cfg *Config) check(ttl time.Duration) error {
	_, unnamed := cfg.Labels[""]
	switch {
	case ttl < driver.MinTTL || ttl > driver.MaxTTL:
		return fmt.Errorf("%w TTL %v: allowed are %v to %v", ErrInvalid, ttl, driver.MinTTL, driver.MaxTTL)
	case cfg.Margin < 0 || cfg.Margin > ttl/2:
		return fmt.Errorf("%w margin %v: allowed are 0 (for a tenth of the TTL) to half of the TTL, %v", ErrInvalid,
			cfg.Margin, ttl/2)
	case cfg.History < 0 || cfg.History > driver.MaxHistory:
		return fmt.Errorf("%w History of %d: allowed are 0 to %d", ErrInvalid, cfg.History, driver.MaxHistory)
	case unnamed:
		return fmt.Errorf("%w Labels: a key is empty", ErrInvalid)
	}
	return nil
}
