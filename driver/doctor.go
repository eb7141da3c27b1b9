package driver

import (
	"context"
	"fmt"
	"time"
)

// A Diagnoser is a Backend that can be examined: it looks for settings of its deployment under
// which two may hold one lock, or waits and tokens suffer. Backends need not be Diagnosers.
type Diagnoser interface {
	// Diagnose looks at the store as it is now, for clients whose leases last ttl. It reports what it looked
	// at and found in order, too, and what it could not find out, so that silence is never
	// mistaken for health. It changes no setting and takes no lock, asks the store a bounded number of
	// things, and may take a few seconds, as some of them are about how the store behaves over time. It may
	// be called concurrently.
	//
	// An error says that the store cannot be used as it is, with the sentinel that an attempt to lock would
	// meet (ErrUnavailable, ErrUncertain, ErrRefused, ErrInvalid, ErrClosed); the findings are then those
	// that were made before. A server that refuses to tell a setting is not an error but an Unclear finding.
	//
	// No finding has a password in it.
	Diagnose(ctx context.Context, ttl time.Duration) ([]Finding, error)
}

// Severity says what a Finding means for locks.
type Severity uint8

// The severities, from harmless to worst.
const (
	Fine      Severity = iota // it was looked at, and is as it should be
	Slows                     // locks are sound; waits are longer, requests fail, or tokens reach less far
	Unclear                   // it could not be found out; Why says for what reason
	Endangers                 // two may hold one lock
)

var severities = [...]string{"fine", "slows", "unknown", "endangers"}

// String is the severity in one lower-case word: "fine", "slows", "unknown", "endangers".
func (s Severity) String() string {
	if int(s) < len(severities) {
		return severities[s]
	}
	return fmt.Sprintf("Severity(%d)", uint8(s))
}

// Finding is one thing that Diagnose looked at. Its texts are for people, may change, and are
// whole clauses without a full stop at the end.
type Finding struct {
	// Code says what was looked at: the store and the matter, such as "redis.eviction". Codes are
	// stable: programs may rely on them. One code may come several times, for several servers.
	Code string

	Severity Severity

	// MayEndanger marks an Unclear finding of which the usual settings include dangerous ones, so that it must not
	// be taken for health. Without it, the usual setting is harmless.
	MayEndanger bool

	Server string // of which server this was found; "" if it is about the store as a whole
	Found  string // what was found: "maxmemory-policy is allkeys-lru"
	Why    string // what that means for locks; "" if Fine
	Do     string // the setting to change, or how to find out; "" if Fine
}

// Danger reports whether the finding stands in the way of relying on the store: it endangers locks, or
// hides what may.
func (f *Finding) Danger() bool {
	return f.Severity == Endangers || f.Severity == Unclear && f.MayEndanger
}
