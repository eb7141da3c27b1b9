package driver

import (
	"context"
	"fmt"
	"time"
)

// A Diagnoser is a Backend that can be examined. It looks for settings of its deployment that allow
// two holders of one lock, or that make waits longer or tokens weaker. Backends need not be
// Diagnosers.
type Diagnoser interface {
	// Diagnose examines the current state of the store, for clients whose leases last ttl. It
	// reports problems, what is in order, and what it could not find out, so that a missing finding
	// never looks like health. It changes no setting and takes no lock. It asks the store a bounded
	// number of things, and may take a few seconds because it also observes behaviour over time. It
	// may be called concurrently.
	//
	// An error means that the store cannot be used as it is. It wraps the sentinel that an attempt
	// to lock would get (ErrUnavailable, ErrUncertain, ErrRefused, ErrInvalid, ErrClosed); the
	// findings are then those made before. A server that does not disclose a setting is an Unclear
	// finding and no error.
	//
	// No finding contains a password.
	Diagnose(ctx context.Context, ttl time.Duration) ([]Finding, error)
}

// Severity is what a Finding means for locks.
type Severity uint8

// The severities, from harmless to worst.
const (
	Fine      Severity = iota // examined, and in order
	Slows                     // locks are sound; waits are longer, requests fail, or tokens reach less far
	Unclear                   // could not be found out; Why has the reason
	Endangers                 // two clients may hold one lock
)

var severities = [...]string{"fine", "slows", "unknown", "endangers"}

// String returns the severity in one lower-case word: "fine", "slows", "unknown", "endangers".
func (s Severity) String() string {
	if int(s) < len(severities) {
		return severities[s]
	}
	return fmt.Sprintf("Severity(%d)", uint8(s))
}

// Finding is one thing that Diagnose examined. Its texts are for people and may change. They are
// whole clauses without a full stop at the end.
type Finding struct {
	// Code names the store and the matter, such as "redis.eviction". Codes are stable: programs may
	// rely on them. One code may occur several times, for several servers.
	Code string

	Severity Severity

	// MayEndanger marks an Unclear finding for which some usual settings are dangerous. Without it,
	// the usual settings are harmless.
	MayEndanger bool

	Server string // the server that this is about; "" if it is about the store as a whole
	Found  string // the state: "maxmemory-policy is allkeys-lru"
	Why    string // what that means for locks; "" if Fine
	Do     string // the setting to change, or how to find out; "" if Fine
}

// Danger reports whether the finding is a reason not to rely on the store: it endangers locks, or
// may hide a danger.
func (f *Finding) Danger() bool {
	return f.Severity == Endangers || f.Severity == Unclear && f.MayEndanger
}
