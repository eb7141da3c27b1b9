package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
	"github.com/holdfast-lock/holdfast/redislock"
)

var _ driver.Diagnoser = (*Backend)(nil)

// examined is the result of examining one server.
type examined struct {
	list  []driver.Finding
	birth redislock.Birth
	ahead time.Duration // how far its clock is ahead of this machine's, to within half the time of the request
	err   error
}

// Diagnose implements [driver.Diagnoser]. It examines all servers at the same time, each as a
// server of package redislock. Findings that matter less with a majority are adapted.
func (b *Backend) Diagnose(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	switch {
	case b.err != nil:
		return nil, b.err
	case ttl > b.quarantine:
		return nil, fmt.Errorf("%w ttl %v: the quarantine of this quorum is %v, and no lease may be longer",
			driver.ErrInvalid, ttl, b.quarantine)
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
	errs := b.majority(&f, all)
	lost := len(errs) > len(b.servers)-b.need()
	for i, s := range b.servers {
		x := &all[i]
		f.Server = s.Name
		if quarantined := (*redislock.Newborn)(nil); x.err != nil && !errors.As(x.err, &quarantined) {
			f.Add(unusable(x.err, lost))
		} else {
			f.Fine("quorum.reach", "it answers")
			b.judgeQuarantine(&f, x.birth, lost)
		}
		for _, one := range x.list {
			if one, ok := forQuorum(one); ok {
				one.Server = s.Name
				f.Add(one)
			}
		}
	}
	if lost {
		return f.List, b.verdictOfAll(errs)
	}
	return f.List, nil
}

// examine examines one server.
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
	x.err = ofServer(s.Name, err)
	return x
}

// size judges the number of servers.
func (b *Backend) size(f *doctor.Findings) {
	n := len(b.servers)
	if n%2 == 0 {
		f.Add(driver.Finding{Code: "quorum.size", Severity: driver.Slows, Found: fmt.Sprintf("%d servers, an even number", n),
			Why: fmt.Sprintf("%d may fail, as of %d; one more is asked for every lock", (n-1)/2, n-1),
			Do:  "an odd number: 3 or 5"})
		return
	}
	f.Fine("quorum.size", "%d servers, of which %d may fail", n, (n-1)/2)
}

// runsOf looks for servers with two names.
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
			f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
				Found: fmt.Sprintf("%s and %s are one server", b.servers[j].Name, b.servers[i].Name),
				Why:   "it would have two votes, and a lock that it gives away under one name would seem held under the other. Sessions are refused",
				Do:    "name each server once; see what the names resolve to"})
		}
		by[run] = i
	}
	if fine {
		f.Fine(code, "the servers that answered are different ones")
	}
}

// clocksOf judges how much the servers' clocks differ.
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
	case apart > b.quarantine*3/4:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("the servers' clocks differ by %v; the quarantine is %v", apart.Round(time.Millisecond),
				b.quarantine),
			Why: "a server that has lost its data may come back with a clock behind earlier tokens: tokens may go back, and a resource that checks them may accept an old holder",
			Do:  "let chrony or ntpd keep the clocks together"})
	case apart > lead/2:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("the servers' clocks differ by %v", apart.Round(time.Millisecond)),
			Why:   "the servers give different tokens, and need another exchange to agree on one",
			Do:    "let chrony or ntpd keep the clocks together"})
	default:
		f.Fine(code, "the servers' clocks agree to within %v", max(apart.Round(time.Millisecond), time.Millisecond))
	}
}

// majority judges whether enough servers vote for any lock to be granted, and returns the errors of the
// others.
func (b *Backend) majority(f *doctor.Findings, all []examined) (errs []error) {
	const code = "quorum.majority"
	for i := range all {
		if all[i].err != nil {
			errs = append(errs, all[i].err)
		}
	}
	refusing := 0
	for i := range all {
		if all[i].err == nil && slices.ContainsFunc(all[i].list, refusesWrites) {
			refusing++
		}
	}
	n, usable := len(b.servers), len(b.servers)-len(errs)
	if usable >= b.need() && usable-refusing < b.need() {
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("%d of %d servers can be used, but %d of these refuse new locks, or will do so soon; %d are needed",
				usable, n, refusing, b.need()),
			Why: "while a majority is down or refuses, nobody gets a lock, though holders keep theirs",
			Do:  "see the findings about each server"})
		return errs
	}
	if usable >= b.need() {
		f.Fine(code, "%d of %d servers can be used; %d are needed", usable, n, b.need())
		return errs
	}
	f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
		Found: fmt.Sprintf("no majority: %d of %d servers can be used, and %d are needed", usable, n, b.need()),
		Why:   "nobody gets a lock, and holders give theirs up before their leases end",
		Do:    "see the findings about each server: what it lacks, or when it votes again"})
	return errs
}

// refusesWrites reports whether a finding means that the server refuses new locks, or will do so soon.
func refusesWrites(one driver.Finding) bool {
	codes := []string{"redis.disk", "redis.eviction", "redis.min-replicas"}
	return one.Severity == driver.Slows && slices.Contains(codes, one.Code)
}

// consequence says what it means that one server has no vote.
func consequence(lost bool) string {
	if lost {
		return "it has no vote, and without a majority nobody gets a lock"
	}
	return "it has no vote, so fewer of the others may fail"
}

// unusable is the finding about a server that cannot be used.
func unusable(err error, lost bool) driver.Finding {
	text := err.Error()
	if one := (*serverError)(nil); errors.As(err, &one) { // the finding names the server
		text = strings.Replace(text, one.server+": ", "", 1)
	}
	do := "start it, or see why it cannot be reached from here"
	if errors.Is(err, driver.ErrRefused) {
		do = "it answers: remove the cause of its refusal, at that server or in this URL"
	}
	return driver.Finding{Code: "quorum.reach", Severity: driver.Slows, Found: "it cannot be used: " + text,
		Why: consequence(lost), Do: do}
}

// judgeQuarantine judges whether a server votes.
func (b *Backend) judgeQuarantine(f *doctor.Findings, birth redislock.Birth, lost bool) {
	const code = "quorum.quarantine"
	if birth.Left > 0 {
		do := "wait"
		if !b.used.Load() {
			do += fmt.Sprintf("; only if nobody ever had a lock here, and all %d servers are new: holdfast init", len(b.servers))
		}
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("it has started, lost its data, or had its clock set lately, and has no vote for another %v",
				birth.Left.Round(time.Second)),
			Why: "its forgotten grants must expire first. Until then " + consequence(lost), Do: do})
		return
	}
	f.Fine(code, "it votes (the quarantine is %v)", b.quarantine)
}

// forQuorum adapts a finding about a single server to a server of a quorum; false if it does not
// matter there.
func forQuorum(one driver.Finding) (driver.Finding, bool) {
	if one.Severity == driver.Fine {
		return one, true
	}
	switch one.Code {
	case "redis.persistence":
		one.Severity, one.MayEndanger, one.Why, one.Do = driver.Fine, false, "", ""
		one.Found += "; a server of a quorum that restarts has no vote until its forgotten grants have expired. " +
			"Only minimum holds (--every) longer than the quarantine need persistence"
	case "redis.flushes":
		one.Why = "a server of a quorum that was emptied has no vote until its forgotten grants have expired, so no lock was lost; " +
			"minimum holds (--every) longer than the quarantine may be"
	case "redis.cutoff": // a quorum needs no failover
		return one, false
	case "redis.replicas":
		if one.Severity != driver.Endangers {
			break
		}
		one.Why = "a promoted replica has no vote for the quarantine, as after a restart; but if clients do not agree on which of the two is the server, one vote is cast twice"
		one.Do = "do not let replicas be promoted: a quorum needs none"
	case "redis.eviction":
		if one.Severity == driver.Slows { // it is almost full
			one.Why = "when the memory is full, this server grants no new lock and has no vote for it, so fewer of the others may fail; renewals and releases still work"
		}
	case "redis.reach":
		one.Code = "quorum.reach"
	}
	return one, true
}
