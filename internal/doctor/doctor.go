// Package doctor has the common parts of the examinations of all stores: a list of findings, and
// the judgement of clocks, latencies and numbers of connections.
package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Findings collects the findings of an examination.
type Findings struct {
	List   []driver.Finding
	Server string // of the findings that are added from now on
}

// Add adds a finding and sets its Server.
func (f *Findings) Add(one driver.Finding) {
	if one.Server == "" {
		one.Server = f.Server
	}
	f.List = append(f.List, one)
}

// Fine adds a finding without a problem.
func (f *Findings) Fine(code, format string, args ...any) {
	f.Add(driver.Finding{Code: code, Found: fmt.Sprintf(format, args...)})
}

// Look is one reading of a server's clock.
type Look struct {
	Before, After time.Time     // this machine's clock, wall and monotonic, before and after the request
	Server        time.Duration // the server's clock, since 1970
}

// LookAt reads the server's clock, in microseconds since 1970.
func LookAt(ctx context.Context, ask func(context.Context) (int64, error)) (Look, error) {
	l := Look{Before: time.Now()}
	us, err := ask(ctx)
	l.After, l.Server = time.Now(), time.Duration(us)*time.Microsecond
	return l, err
}

// Apart is the least time between two readings.
const Apart = 500 * time.Millisecond

// Await returns when it is time for the second reading, or ctx has ended.
func (l Look) Await(ctx context.Context) {
	t := time.NewTimer(time.Until(l.After.Add(Apart)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Clock judges the server's clock by two readings, for leases of ttl.
//
// A difference counts only if no delay of the network or of this machine explains it: the server
// read its clock at some time between Before and After.
func (f *Findings) Clock(code string, first, second Look, ttl time.Duration) {
	went := second.Server - first.Server
	least, most := second.Before.Sub(first.After), second.After.Sub(first.Before)
	// A client stops trusting a lease a tenth of the TTL before it ends. So the speeds of the
	// clocks may differ by that much.
	const grain = 5 * time.Millisecond
	slack := most/10 + grain
	switch {
	case went < 0:
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("the server's clock went back by %v between two readings", -went),
			Why:   "something steps the clock. A step forward ends leases at the server while their holders rely on them, and two clients hold one lock",
			Do:    adjust})
		return
	case went > most+slack || went < least-slack:
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("the server's clock went on by %v while %v passed here", went.Round(time.Millisecond),
				most.Round(time.Millisecond)),
			Why: "the server times leases by this clock, and holders by theirs: if it jumps ahead or runs faster, leases end at the server while their holders rely on them",
			Do:  adjust})
		return
	}
	// Ahead by at least this much; negative: behind.
	ahead := first.Server - time.Duration(first.After.UnixMicro())*time.Microsecond
	behind := time.Duration(first.Before.UnixMicro())*time.Microsecond - first.Server
	limit := max(ttl/10, time.Second)
	switch {
	case behind > limit:
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, MayEndanger: true,
			Found: fmt.Sprintf("the server's clock is %v behind this machine's", behind.Round(time.Millisecond)),
			Why: "leases are not affected, but one of the two clocks is wrong. If it is the server's, and somebody corrects it in one step, all " +
				"leases end early there while their holders rely on them",
			Do: "compare both with a third clock. " + adjust})
	case ahead > limit:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("the server's clock is %v ahead of this machine's", ahead.Round(time.Millisecond)),
			Why: "leases are not affected. But if the clock is set back, leases last longer by that; and tokens, which are times, repeat if the " +
				"server also loses its data, or another server with the right time takes over",
			Do: "compare both with a third clock. " + adjust})
	default:
		f.Fine(code, "the server's clock agrees with this machine's to within %v, and did not jump in %v", limit,
			most.Round(10*time.Millisecond))
	}
}

const adjust = "let chrony or ntpd slew the server's clock and never step it while locks are in use (chrony: makestep 1 3, which steps at " +
	"start only; ntpd: -x)"

// Latency judges how long the store takes to answer, by the slowest of n requests.
func (f *Findings) Latency(code string, slowest time.Duration, n int, ttl time.Duration) {
	shown := slowest.Round(10 * time.Microsecond)
	if slowest > ttl/20 {
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("an answer took %v, the slowest of %d, where leases last %v", shown, n, ttl),
			Why:   "a renewal has to succeed within the lease, and is tried a few times; with an even slower store holders lose their leases, and learn of that in time",
			Do:    "a longer --ttl, at least 20 times the slowest answer, or a store that is nearer or less busy"})
		return
	}
	f.Fine(code, "the slowest of %d answers took %v; leases last %v", n, shown, ttl)
}

// Headroom judges how many more connections a server can accept; setting is the name of the limit.
func (f *Findings) Headroom(code, setting string, used, limit int64) {
	if left := limit - used; left < 10 || left < limit/10 {
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("%d of %d connections are in use (%s)", used, limit, setting),
			Why:   "when none is left, clients that start or connect again are refused, and holders that lost their connection cannot renew",
			Do:    fmt.Sprintf("raise %s, or find out which clients keep so many", setting)})
		return
	}
	f.Fine(code, "%d of %d connections are in use (%s)", used, limit, setting)
}

// Slowest asks n times and returns the longest time that an answer took.
func Slowest(ctx context.Context, n int, ask func(context.Context) error) (longest time.Duration, err error) {
	for range n {
		began := time.Now()
		if err := ask(ctx); err != nil {
			return longest, err
		}
		longest = max(longest, time.Since(began))
	}
	return longest, nil
}
