package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
	"github.com/holdfast-lock/holdfast/redislock"
)

var _ driver.Diagnoser = (*Backend)(nil)

// examined is what was found out about one server.
type examined struct {
	list  []driver.Finding
	birth redislock.Birth
	ahead time.Duration // its clock, of this machine's, by half of how long the question took
	err   error
}

// Diagnose implements [driver.Diagnoser]. Every server is examined as one of package redislock is, at the same
// time; what matters less where a majority decides is judged so.
func (b *Backend) Diagnose(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	switch {
	case b.err != nil:
		return nil, b.err
	case ttl > b.quarantine:
		return nil, fmt.Errorf("%w ttl %v: the quarantine of this quorum is %v, and no lease may be longer", driver.ErrInvalid, ttl, b.quarantine)
	}
	all := make([]examined, len(b.servers))
	var group sync.WaitGroup
	for i, s := range b.servers {
		group.Go(func() { all[i] = s.examine(ctx, ttl) })
	}
	group.Wait()
	var f doctor.Findings
	b.size(&f)
	b.runsOf(&f, all)
	b.clocksOf(&f, all)
	var errs []error
	for i, s := range b.servers {
		x := &all[i]
		f.Server = s.Name
		var young *redislock.Newborn
		if x.err != nil && !errors.As(x.err, &young) {
			errs = append(errs, x.err)
			f.Add(driver.Finding{Code: "quorum.reach", Severity: driver.Slows, Found: fmt.Sprintf("no use can be made of it: %v", x.err),
				Why: "one vote less: fewer of the others may fail", Do: "start it, or see why it cannot be used from here"})
		} else {
			f.Fine("quorum.reach", "it answers")
			b.young(&f, x.birth)
		}
		for _, one := range x.list {
			if one, ok := retold(one); ok {
				one.Server = s.Name
				f.Add(one)
			}
		}
	}
	if len(errs) > len(b.servers)-b.need() {
		return f.List, b.verdict(errs)
	}
	return f.List, nil
}

// examine looks at one server.
func (s *server) examine(ctx context.Context, ttl time.Duration) (x examined) {
	m, err := s.get(ctx)
	if err == nil {
		before := time.Now()
		x.birth, err = m.Birth(ctx, false)
		x.ahead = x.birth.Clock - time.Duration(before.Add(time.Since(before)/2).UnixMicro())*time.Microsecond
	}
	if err == nil {
		x.list, err = m.Diagnose(ctx, ttl)
	}
	if err != nil {
		x.err = fmt.Errorf("%s: %w", s.Name, err)
	}
	return x
}

// size judges how many servers there are.
func (b *Backend) size(f *doctor.Findings) {
	n := len(b.servers)
	if n%2 == 0 {
		f.Add(driver.Finding{Code: "quorum.size", Severity: driver.Slows, Found: fmt.Sprintf("%d servers, an even number", n),
			Why: fmt.Sprintf("%d may fail, as of %d; one more is asked for every lock", (n-1)/2, n-1), Do: "an odd number: 3 or 5"})
		return
	}
	f.Fine("quorum.size", "%d servers, of which %d may fail", n, (n-1)/2)
}

// runsOf looks for servers that have two names.
func (b *Backend) runsOf(f *doctor.Findings, all []examined) {
	const code = "quorum.servers"
	by := map[string]int{}
	fine := true
	for i := range all {
		run := all[i].birth.Run
		j, twice := by[run]
		if run == "" {
			continue
		}
		if twice {
			fine = false
			f.Add(driver.Finding{Code: code, Severity: driver.Endangers, Found: fmt.Sprintf("%s and %s are one server", b.servers[j].Name, b.servers[i].Name),
				Why: "it has two votes, and what it gives away under one name it is still taken to hold under the other. Sessions are refused",
				Do:  "name each server once; see what the names resolve to"})
		}
		by[run] = i
	}
	if fine {
		f.Fine(code, "the servers that answered are different ones")
	}
}

// clocksOf judges by how much the servers' clocks differ.
func (b *Backend) clocksOf(f *doctor.Findings, all []examined) {
	const code = "quorum.clocks"
	var seen []time.Duration
	for i := range all {
		if all[i].birth.Clock != 0 {
			seen = append(seen, all[i].ahead)
		}
	}
	if len(seen) == 0 {
		return
	}
	apart := slices.Max(seen) - slices.Min(seen)
	lead := redislock.Lead(b.quarantine)
	switch {
	case apart > b.quarantine-lead:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: fmt.Sprintf("the servers' clocks differ by %v; the quarantine is %v", apart.Round(time.Millisecond), b.quarantine),
			Why: "a server that has lost its data may come back with a clock behind tokens that were given out before: tokens may go back, and a resource that checks them may take in an old holder",
			Do:  "let chrony or ntpd keep the clocks together"})
	case apart > lead/2:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: fmt.Sprintf("the servers' clocks differ by %v", apart.Round(time.Millisecond)),
			Why: "the servers give different tokens, and have to be told of one in another exchange", Do: "let chrony or ntpd keep the clocks together"})
	default:
		f.Fine(code, "the servers' clocks agree to %v", max(apart.Round(time.Millisecond), time.Millisecond))
	}
}

// young judges whether a server takes part.
func (b *Backend) young(f *doctor.Findings, birth redislock.Birth) {
	const code = "quorum.quarantine"
	if birth.Left > 0 {
		f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: fmt.Sprintf("it has started, lost its data, or had its clock set lately, and stays out for another %v", birth.Left.Round(time.Second)),
			Why: "what it has forgotten must have run out first. Until then it has no vote: fewer of the others may fail",
			Do:  "wait. If the whole quorum is new and nobody has used it, holdfast init declares it so"})
		return
	}
	f.Fine(code, "it takes part (the quarantine is %v)", b.quarantine)
}

// retold is what a finding about a server means where it is one of a quorum; false if nothing.
func retold(one driver.Finding) (driver.Finding, bool) {
	if one.Severity == driver.Fine {
		return one, true
	}
	switch one.Code {
	case "redis.persistence":
		one.Severity, one.MayEndanger, one.Why, one.Do = driver.Fine, false, "", ""
		one.Found += "; a server of a quorum that restarts stays out until what it may have forgotten has run out"
	case "redis.cutoff": // there is nothing to take over
		return one, false
	case "redis.replicas":
		if one.Severity != driver.Endangers {
			break
		}
		one.Why = "if one takes over it stays out for the quarantine, as after a restart; but when clients do not agree on which of the two is the server, one vote is cast twice"
		one.Do = "no replicas that take over: a quorum does without them"
	case "redis.reach":
		one.Code = "quorum.reach"
	}
	return one, true
}
