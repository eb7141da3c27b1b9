package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

var _ driver.Diagnoser = (*Backend)(nil)

// node is what one server reports about itself.
type node struct {
	server string
	info   map[string]string // INFO's fields
	why    error             // why there are none
	config map[string]string
	denied error // why settings are missing
	alone  bool  // the Conn leads to no other server
	many   bool  // the Conn leads to a Cluster
	wait   int   // replicas that have to confirm grants
}

// settings are the names that CONFIG GET is asked for. None is secret.
var settings = []string{
	"maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "no-appendfsync-on-rewrite", "save", "maxclients",
	"client-output-buffer-limit", "lua-time-limit", "min-replicas-to-write",
}

// Diagnose implements [driver.Diagnoser]. It sends INFO, CONFIG GET, ACL, TIME, PING and CLUSTER
// NODES, as far as the user's permissions allow.
func (b *Backend) Diagnose(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	if b.err != nil {
		return nil, b.err
	}
	var f doctor.Findings
	asker, ok := b.asker()
	if !ok {
		f.Add(driver.Finding{Code: "redis.settings", Severity: driver.Unclear, MayEndanger: true,
			Found: fmt.Sprintf("the server's settings cannot be asked for through a %T", b.conn.Conn),
			Why:   "eviction, persistence and replication decide whether two can hold one lock",
			Do:    "examine the server through a Conn that is an Asker, such as those of packages rueidisconn and goredisconn"})
		return f.List, b.tryScripts(ctx, &f)
	}
	s := &survey{asking: asker}
	nodes, err := b.interview(ctx, s)
	if err != nil {
		return nil, err
	}
	err = b.examine(ctx, s, nodes, ttl, &f)
	s.report(ctx, &f)
	return f.List, err
}

// examine makes all checks but those of the servers' reach.
func (b *Backend) examine(ctx context.Context, s *survey, nodes []*node, ttl time.Duration, f *doctor.Findings) error {
	first, err := looks(ctx, s)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		f.Server = n.server
		if err := n.judge(f); err != nil {
			return err
		}
	}
	f.Server = ""
	b.lookForMoves(ctx, s, f)
	b.lookAtUsers(ctx, s, f)
	lookForFlushes(ctx, s, f)
	if err := b.tryScripts(ctx, f); err != nil {
		return err
	}
	if err := b.lookForDamage(ctx, s, f); err != nil {
		return err
	}
	slowest, err := doctor.Slowest(ctx, 10, func(ctx context.Context) error { return failure(s.Ask(ctx, "PING")) })
	if err != nil {
		return err
	}
	f.Latency("redis.latency", slowest, 10, ttl)
	if err := b.tryWakeups(ctx, s, f); err != nil {
		return err
	}
	for _, l := range first {
		l.Await(ctx)
	}
	second, err := looks(ctx, s)
	if err != nil {
		return err
	}
	for _, server := range slices.Sorted(maps.Keys(first)) {
		if later, ok := second[server]; ok {
			f.Server = server
			f.Clock("redis.clock", first[server], later, ttl)
		}
	}
	return nil
}

// asker returns the Asker of b, if its Conn is one.
func (b *Backend) asker() (asking, bool) {
	conn := b.conn.Conn
	if g, ok := conn.(*gate); ok {
		conn = g.Conn
	}
	a, ok := conn.(Asker)
	return asking{a}, ok
}

// failure returns an error of answers if all of them are errors: the first, if it is not that another
// server has the key. If only some servers do not answer, that is a finding.
func failure(all []Answer) (err error) {
	for _, a := range all {
		if a.Err == nil {
			return nil
		}
		if err == nil || unstable(err) {
			err = a.Err
		}
	}
	return err
}

// refused reports whether the server answered that it will not do what was asked.
func refused(err error) bool { return errors.Is(err, driver.ErrRefused) }

// interview asks every server about itself. All questions are one exchange, which a server answers as a
// whole or not at all.
func (b *Backend) interview(ctx context.Context, s *survey) (nodes []*node, err error) {
	commands := [][]string{{"INFO"}}
	for _, name := range settings {
		commands = append(commands, []string{"CONFIG", "GET", name})
	}
	for _, a := range s.askAll(ctx, commands...) {
		info := a.Results[0]
		if lost := slices.IndexFunc(a.Results, func(r Result) bool { return unheard(r.Err) }); lost >= 0 {
			err = a.Results[lost].Err
			continue
		}
		n := &node{server: a.Server, config: map[string]string{}, alone: len(s.servers) == 1, many: b.cluster,
			wait: b.waitReplicas, why: info.Err}
		if info.Err == nil {
			n.info = fields(info.Value.Text)
		}
		for i, r := range a.Results[1:] {
			if r.Err != nil {
				n.denied = r.Err
			} else if len(r.Value.List) == 2 { // unknown names have no value
				n.config[settings[i]] = r.Value.List[1].Text
			}
		}
		nodes = append(nodes, n)
	}
	if len(nodes) > 0 {
		err = nil // survey.report mentions the others
	}
	return nodes, err
}

// fields parses the answer to INFO.
func fields(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && !strings.HasPrefix(k, "#") {
			m[k] = v
		}
	}
	return m
}

// looks reads the clock of every server.
func looks(ctx context.Context, s *survey) (map[string]doctor.Look, error) {
	var answers []Answer
	l, err := doctor.LookAt(ctx, func(ctx context.Context) (int64, error) {
		answers = s.Ask(ctx, "TIME")
		return 0, failure(answers)
	})
	all := map[string]doctor.Look{}
	for _, a := range answers {
		if len(a.Value.List) != 2 {
			continue
		}
		var seconds, us int64
		if _, err := fmt.Sscan(a.Value.List[0].Text+" "+a.Value.List[1].Text, &seconds, &us); err == nil {
			l.Server = time.Duration(seconds)*time.Second + time.Duration(us)*time.Microsecond
			all[a.Server] = l
		}
	}
	return all, err
}

// tryScripts runs a script that changes nothing.
func (b *Backend) tryScripts(ctx context.Context, f *doctor.Findings) error {
	const code = "redis.scripts"
	bounded, cancel := b.forOne(ctx)
	defer cancel()
	_, err := b.Inspect(bounded, "holdfast doctor")
	if b.cluster && unstable(err) {
		return nil // its slot is moving, which is a finding of its own
	}
	if b.oneSilent(ctx, err) {
		f.Add(notTried(code, "whether scripts run could not be tried", err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("running a script: %w", err)
	}
	f.Fine(code, "scripts run, by EVALSHA and EVAL")
	return nil
}

const wakeupsCode = "redis.wakeups"

// untried is the finding about wake-ups that the user may not try, such as a user who only looks.
func untried(doing string, err error) driver.Finding {
	return driver.Finding{Code: wakeupsCode, Severity: driver.Unclear,
		Found: fmt.Sprintf("whether waiters can be woken could not be tried: %s: %v", doing, err),
		Why:   "a user who takes locks needs this permission: a release is refused without it, or waiters are not told that they got the lock",
		Do:    "examine it as a user who takes locks, with the permissions of docs/security.md",
	}
}

// messageLimit bounds how long a message may take to arrive.
const messageLimit = 3 * time.Second

// tryWakeups sends itself a message, on a channel like those of sessions.
func (b *Backend) tryWakeups(ctx context.Context, s *survey, f *doctor.Findings) error {
	const code = wakeupsCode
	received := make(chan struct{}, 1)
	receive := func(string) {
		select {
		case received <- struct{}{}:
		default:
		}
	}
	session, publish, count, subscribe := "doctor"+strings.ToLower(rand.Text()[:12]), "PUBLISH", "NUMSUB", b.conn.Subscribe
	channel := b.channel(session)
	if b.cluster {
		c := newCall().tag(b.prefix, 0).str("s:").str(session).end().done()
		channel, publish, count, subscribe = strings.Clone(c.strs[0]), "SPUBLISH", "SHARDNUMSUB", b.conn.SubscribeShard
		c.free()
	}
	// failed reports an error, or returns it if nothing else can be examined.
	failed := func(doing string, err error) error {
		if !b.oneSilent(ctx, err) {
			return fmt.Errorf("%s: %w", doing, err)
		}
		f.Add(notTried(code, "whether waiters can be woken could not be tried: "+doing, err))
		return nil
	}
	bounded, cancel := b.forOne(ctx)
	defer cancel()
	stop, err := subscribe(bounded, channel, receive, func() {})
	if NoShards(err) {
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: "the servers have no sharded channels, which came with Redis 7",
			Why:   "every message goes to every server, and no script can count subscribers: a waiter that has died is passed over only when its place expires",
			Do:    "upgrade to Redis 7 or later"})
		return nil
	}
	if err != nil {
		return failed("subscribing", err)
	}
	defer stop()
	counts := s.Ask(ctx, "PUBSUB", count, channel)
	if err := failure(counts); refused(err) {
		f.Add(untried("counting subscribers", err))
		return nil
	} else if err != nil {
		return failed("counting subscribers", err)
	}
	var counted int64
	for _, a := range counts {
		if len(a.Value.List) == 2 {
			counted += a.Value.List[1].Int
		}
	}
	// In a Cluster all servers but one redirect the command to that one.
	if err := failure(s.Ask(ctx, publish, channel, "0")); refused(err) {
		f.Add(untried("publishing", err))
		return nil
	} else if err != nil {
		return failed("publishing", err)
	}
	limit := time.NewTimer(messageLimit)
	defer limit.Stop()
	select {
	case <-received:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	case <-limit.C:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("a message that was published did not arrive within %v", messageLimit),
			Why:   "a waiter is not told that it got the lock, and finds out when it renews its place, up to a third of the TTL later",
			Do:    "let subscriptions through, or connect to the server directly: a proxy that shares connections among clients does not pass messages on"})
		return nil
	}
	if counted == 0 {
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("a message that was published did arrive, but PUBSUB %s counted no subscriber", count),
			Why:   "a release takes waiters without a subscription at the server for dead and passes them over: they lose their place in the queue",
			Do:    "connect to the server directly"})
		return nil
	}
	f.Fine(code, "a message that was published did arrive")
	return nil
}
