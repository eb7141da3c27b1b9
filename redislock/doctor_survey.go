package redislock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

// A survey asks the questions of an examination. All questions go to the servers that the client led to
// at the first one: the client of a Cluster finds and drops servers meanwhile. A server that has not
// answered is not asked again, unless it is the last: each question would wait for it.
type survey struct {
	asking
	servers []string
	silent  map[string]error // the servers that did not answer, and why
}

// errDropped is the answer of a server that the client has dropped.
var errDropped = fmt.Errorf("%w: the client leads to other servers now", driver.ErrUnavailable)

// Ask is askAll for one command.
func (s *survey) Ask(ctx context.Context, words ...string) []Answer {
	return first(s.askAll(ctx, words))
}

// askAll is AskAll for the servers of the survey. Each of them that is asked has an answer.
func (s *survey) askAll(ctx context.Context, commands ...[]string) []Answers {
	asked := slices.DeleteFunc(slices.Clone(s.servers), func(server string) bool { return s.silent[server] != nil })
	if len(asked) == 0 {
		asked = s.servers
	}
	answers := s.AskAll(ctx, asked, commands...)
	nobody := len(answers) == 1 && answers[0].Server == ""
	if s.servers == nil {
		if nobody {
			return answers
		}
		for _, a := range answers {
			s.servers = append(s.servers, a.Server)
		}
		asked, s.silent = s.servers, map[string]error{}
	}
	all := make([]Answers, len(asked))
	for i, server := range asked {
		all[i] = Answers{server, failed(len(commands), errDropped)}
		if j := slices.IndexFunc(answers, func(a Answers) bool { return a.Server == server }); j >= 0 {
			all[i] = answers[j]
		} else if nobody {
			all[i].Results = answers[0].Results
		}
		for _, r := range all[i].Results {
			if unheard(r.Err) && s.silent[server] == nil && ctx.Err() == nil {
				s.silent[server] = r.Err
			}
		}
	}
	return all
}

// unheard reports whether err means that a server does not answer questions. An answer may be about the
// Cluster, about its own primary, or that another server has the key.
func unheard(err error) bool {
	if r := (*Refusal)(nil); errors.As(err, &r) && (r.Code == "CLUSTERDOWN" || r.Code == "MASTERDOWN") {
		return false
	}
	return err != nil && !refused(err) && !unstable(err)
}

const (
	reachCode = "redis.reach"
	whyReach  = "locks that this server keeps can neither be taken nor renewed, unless a replica takes over; " +
		"the primary of a replica lacks one that could confirm grants"
)

// report adds what is wrong with the servers themselves. If there is only one, errors say that.
func (s *survey) report(ctx context.Context, f *doctor.Findings) {
	if len(s.servers) == 1 {
		return
	}
	f.Server = ""
	changed := func(server, found string) {
		f.Add(driver.Finding{Code: reachCode, Severity: driver.Unclear, Server: server, Found: found,
			Why: "not all checks of this server were made: a failover, or another change of the servers, was under way",
			Do:  "run the examination again"})
	}
	known := func(server string) bool {
		return slices.ContainsFunc(f.List, func(f driver.Finding) bool { return f.Code == reachCode && f.Server == server })
	}
	for _, server := range slices.Sorted(maps.Keys(s.silent)) {
		switch err := s.silent[server]; {
		case known(server):
		case errors.Is(err, errDropped):
			changed(server, "the client has dropped this server while it was examined")
		default:
			f.Add(driver.Finding{Code: reachCode, Severity: driver.Slows, Server: server,
				Found: fmt.Sprintf("no answer: %v", err),
				Why:   whyReach,
				Do:    "start it, or see why it cannot be reached from here"})
		}
	}
	for _, a := range s.AskAll(ctx, nil) {
		if a.Server != "" && !slices.Contains(s.servers, a.Server) && !known(a.Server) {
			changed(a.Server, "the client found this server while others were examined")
		}
	}
}

// oneSilent reports whether err means that one of several servers does not answer. The others can still
// be examined.
func (b *Backend) oneSilent(ctx context.Context, err error) bool {
	return b.cluster && unanswered(err) && !unstable(err) && ctx.Err() == nil
}

// forOne bounds a check that needs a certain server of several, which may be silent.
func (b *Backend) forOne(ctx context.Context) (context.Context, context.CancelFunc) {
	if !b.cluster {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, 5*time.Second)
}

// notTried is the finding about a check that needed a silent server.
func notTried(code, what string, err error) driver.Finding {
	return driver.Finding{Code: code, Severity: driver.Unclear, Found: fmt.Sprintf("%s: %v", what, err),
		Why: "this check needs a certain server, which did not answer or is being replaced",
		Do:  "run the examination again when all servers answer and no failover is under way"}
}
