package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
)

// The kinds of faults that verify injects by itself: into its own processes, and into their traffic
// with the store. All but the last two need a store that is reached over a network.
const (
	KindDelay       = "delay"        // everything is late
	KindCut         = "cut"          // no bytes pass in either direction, and no end is reported
	KindCutRequests = "cut-requests" // no bytes pass to the server
	KindCutReplies  = "cut-replies"  // no bytes pass to the client
	// Open connections carry nothing more, without an error; new ones work.
	KindForget = "forget"
	// Requests on open connections arrive when the fault ends; new ones pass.
	KindLate        = "late"
	KindReset       = "reset"        // connections are reset, again and again
	KindRefuse      = "refuse"       // as reset, and new connections too
	KindDropReplies = "drop-replies" // a request takes effect, then a reset replaces its reply
	KindStop        = history.FaultStop
	KindKill        = "kill"
)

// KindNone in Options.Kinds means no faults.
const KindNone = "none"

// Kinds returns all kinds but KindNone.
func Kinds() []string {
	return []string{KindStop, KindKill, KindDelay, KindCut, KindCutRequests, KindCutReplies, KindForget, KindLate,
		KindReset, KindRefuse, KindDropReplies}
}

// local are the kinds that need no network.
var local = []string{KindStop, KindKill}

// Fault is a further kind of fault, of the caller's: one of the store itself.
type Fault struct {
	Kind   string // one word, for the report
	Target string // the system at fault, for people; "": the store

	// Inject begins the fault, and returns a function that ends it, which may be nil. With an
	// error, it is called too: half of the fault may have begun. ctx bounds each of the two calls.
	Inject func(ctx context.Context) (heal func(ctx context.Context) error, err error)
}

// checkKinds returns the kinds to inject, of those asked for: all if none were.
func checkKinds(asked []string, remote bool, own []Fault) (kinds []string, err error) {
	for _, f := range own {
		if f.Kind == "" || strings.ContainsAny(f.Kind, " \t\n") || f.Inject == nil || slices.Contains(Kinds(), f.Kind) ||
			f.Kind == KindNone {
			return nil, fmt.Errorf("%w kind of fault %q: allowed is one word that is not among %s", driver.ErrInvalid, f.Kind,
				strings.Join(Kinds(), ", "))
		}
	}
	possible := slices.DeleteFunc(Kinds(), func(k string) bool {
		return k == KindStop && !canStop || !remote && !slices.Contains(local, k)
	})
	switch {
	case len(asked) == 0:
		return possible, nil
	case slices.Equal(asked, []string{KindNone}):
		return nil, nil
	}
	for _, k := range asked {
		switch {
		case !slices.Contains(Kinds(), k):
			return nil, fmt.Errorf("%w kind of fault %q: allowed are %s, or %s alone", driver.ErrInvalid, k,
				strings.Join(Kinds(), ", "), KindNone)
		case !slices.Contains(possible, k):
			return nil,
				fmt.Errorf(
					"%w kind of fault %q: the store is not reached over a network, or this system has no such fault; allowed are %s",
					driver.ErrInvalid, k, strings.Join(possible, ", "))
		case !slices.Contains(kinds, k):
			kinds = append(kinds, k)
		}
	}
	return kinds, nil
}

// planned is one fault of the schedule. Times are in units of the TTL.
type planned struct {
	kind    string
	own     int     // the index of a Fault of the caller's, or -1
	process int     // the index of its target
	server  int     // which one of the servers' addresses that the process uses; -1: all
	length  float64 // of the fault
	lateBy  float64 // of delay: a part of the longest delay
}

func (p planned) String() string {
	switch {
	case p.own >= 0:
		return fmt.Sprintf("%s for %.2f TTL", p.kind, p.length)
	case p.server >= 0:
		return fmt.Sprintf("%s of process %d, server %d, for %.2f TTL", p.kind, p.process+1, p.server+1, p.length)
	}
	return fmt.Sprintf("%s of process %d for %.2f TTL", p.kind, p.process+1, p.length)
}

// round is the faults that begin at one time, in different processes, and the gap after them.
type round struct {
	faults []planned
	gap    float64
}

// schedule draws rounds without end. The same seed, kinds and processes give the same rounds.
type schedule struct {
	rng       *rand.Rand
	kinds     []string
	own       []Fault
	processes int
	beside    int   // see Options.Beside: rounds begin with one kind and the other by turns
	rounds    int   // so far
	undrawn   []int // kinds not drawn since all were: indices of kinds, then of own
}

func newSchedule(seed uint64, kinds []string, own []Fault, processes int) *schedule {
	return &schedule{rng: rand.New(rand.NewPCG(seed, 0x76657269)), kinds: kinds, own: own, processes: processes}
}

// lengths are the shortest and longest time of each kind of fault, in TTLs. A stop is always longer
// than a TTL, so that leases expire meanwhile.
var lengths = map[string][2]float64{
	KindStop: {1.1, 3}, KindDelay: {0.5, 2}, KindCut: {0.5, 2.5}, KindCutRequests: {0.5, 2.5}, KindCutReplies: {0.5, 2.5},
	KindForget: {1, 3}, KindLate: {0.1, 1}, KindReset: {0.3, 1}, KindRefuse: {0.3, 1.5}, KindDropReplies: {0.3, 1.5},
	KindKill: {0, 0},
}

// ownLength is the same for the caller's faults.
var ownLength = [2]float64{0.5, 2}

// next draws a round: usually one fault, sometimes two. Each kind comes once before any comes
// again.
func (s *schedule) next() round {
	r := round{gap: 0.2 + 0.6*s.rng.Float64()}
	n := 1
	if s.processes > 2 && s.rng.IntN(3) == 0 {
		n = 2
	}
	free := s.rng.Perm(s.processes)
	if s.beside > 0 {
		turn := s.rounds%2 == 1
		i := slices.IndexFunc(free, func(p int) bool { return (p >= s.processes-s.beside) == turn })
		free[0], free[i] = free[i], free[0]
	}
	s.rounds++
	for range n {
		r.faults = append(r.faults, s.draw(free[0]))
		free = free[1:]
	}
	return r
}

func (s *schedule) draw(process int) planned {
	if len(s.undrawn) == 0 {
		s.undrawn = s.rng.Perm(len(s.kinds) + len(s.own))
	}
	index := s.undrawn[0]
	s.undrawn = s.undrawn[1:]
	p := planned{own: index - len(s.kinds), process: process, server: s.rng.IntN(18) - 9}
	length := ownLength
	if p.own < 0 {
		p.own, p.kind = -1, s.kinds[index]
		length = lengths[p.kind]
	} else {
		p.kind = s.own[p.own].Kind
	}
	p.length = length[0] + (length[1]-length[0])*s.rng.Float64()
	p.lateBy = 0.2 + 0.8*s.rng.Float64()
	if p.server < 0 || slices.Contains(local, p.kind) || p.own >= 0 {
		p.server = -1
	}
	return p
}

// maxDelay bounds the delay of KindDelay: a late hand-over must not look like a slow store.
func maxDelay(ttl time.Duration) time.Duration { return min(ttl/4, 250*time.Millisecond) }
