package redislock

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

// A SentinelAsker is an Asker that can also ask the sentinels of its primary.
type SentinelAsker interface {
	Asker

	// Sentinels returns an Asker for those sentinels, or nil if there are none, and a function that
	// closes its connections.
	Sentinels() (Asker, func())
}

// hello is the channel on which sentinels publish which server is the primary.
const hello = "__sentinel__:hello"

// users is what is known about the users of one server.
type users struct {
	server string
	denied error
	me     string
	names  []string
	on     map[string]bool     // the users that are on
	open   bool                // the user default is on and needs no password
	who    map[string][]string // the users that have a right
}

// right is a permission: a user has it if the user may run one of the commands. Only users that
// have one of the rights in after are checked for it.
type right struct {
	name     string
	after    []string
	commands [][]string
}

// The rights.
const (
	mayPublish = "publish to sessions"
	mayKnow    = "know what to publish"
	mayLock    = "write the records"
	mayPose    = "publish what sentinels publish"
	mayLead    = "do what sentinels do"
)

// lookAtUsers finds two kinds of users: those that could forge a grant for a waiter although they may
// take no locks, and those that could redirect clients to another server.
func (b *Backend) lookAtUsers(ctx context.Context, s *survey, f *doctor.Findings) {
	session, key := "s:doctor", b.prefix+"doctor"
	channel, publish, subscribe := b.prefix+session, "PUBLISH", "SUBSCRIBE"
	if b.cluster {
		c := newCall().tag(b.prefix, 0).str(session).end().tag(b.prefix, 0).str("doctor").end().done()
		channel, key = strings.Clone(c.strs[0]), strings.Clone(c.strs[1])
		c.free()
		publish, subscribe = "SPUBLISH", "SSUBSCRIBE"
	}
	watched := map[string]bool{}
	for _, a := range s.Ask(ctx, "PUBSUB", "NUMSUB", hello) {
		if a.Err == nil && len(a.Value.List) == 2 && a.Value.List[1].Int > 0 {
			watched[a.Server] = true
		}
	}
	for _, u := range usersOf(ctx, s,
		right{mayPublish, nil, [][]string{{publish, channel, "0"}}},
		right{mayKnow, []string{mayPublish}, [][]string{{subscribe, channel}, {"PSUBSCRIBE", channel}, {"MONITOR"},
			{"GET", key}, {"HGET", key, "x"}, {"HGETALL", key}, {"ZRANGE", key, "0", "0"}, {"DUMP", key}}},
		right{mayLock, []string{mayKnow}, [][]string{{"SET", key, "x"}, {"HSET", key, "x", "x"}}},
		right{mayPose, nil, [][]string{{"PUBLISH", hello, "x"}}},
		right{mayLead, []string{mayPose}, [][]string{{"SLAVEOF", "NO", "ONE"}}},
	) {
		if s.silent[u.server] != nil {
			continue
		}
		f.Server = u.server
		u.judge(f)
		if watched[u.server] {
			u.leaders(f, false) // judge has reported the other consequences of an open user default
		}
	}
	f.Server = ""
	lookAtSentinels(ctx, s.Asker, len(watched) > 0, f)
}

// lookAtSentinels is lookAtUsers for the sentinels themselves.
func lookAtSentinels(ctx context.Context, asker Asker, watched bool, f *doctor.Findings) {
	s, ok := asker.(SentinelAsker)
	var sentinels Asker
	if ok {
		var stop func()
		if sentinels, stop = s.Sentinels(); sentinels != nil {
			defer stop()
		}
	}
	if sentinels == nil {
		if watched {
			f.Add(driver.Finding{Code: sentinelCode, Severity: driver.Unclear, MayEndanger: true,
				Found: "sentinels watch the server; the users that may publish at them are unknown, because this client does not lead to them",
				Why:   whyLeads + ". By default every client that reaches a sentinel may publish it",
				Do:    "examine it by a URL of the sentinels (redis+sentinel://). " + doLeads})
		}
		return
	}
	for _, u := range usersOf(ctx, &survey{asking: asking{sentinels}},
		right{mayPose, nil, [][]string{{"PUBLISH", hello, "x"}}},
		right{mayLead, []string{mayPose}, [][]string{{"SENTINEL", "IS-MASTER-DOWN-BY-ADDR", "127.0.0.1", "1", "0", "*"}}},
	) {
		f.Server = u.server
		u.leaders(f, true)
	}
	f.Server = ""
}

// usersOf asks every server for its users, and which of them have which rights. rights come after those
// that they depend on.
func usersOf(ctx context.Context, s *survey, rights ...right) (all []*users) {
	const most = 200
	by := map[string]*users{}
	known := map[string]bool{}
	for _, a := range s.askAll(ctx, []string{"ACL", "WHOAMI"}, []string{"ACL", "USERS"}) {
		me, list := a.Results[0], a.Results[1]
		u := &users{server: a.Server, denied: cmp.Or(me.Err, list.Err), me: me.Value.Text, on: map[string]bool{},
			who: map[string][]string{}}
		all, by[a.Server] = append(all, u), u
		if len(list.Value.List) > most {
			u.denied = fmt.Errorf("there are %d users, and no more than %d are looked at", len(list.Value.List), most)
			continue
		}
		for _, v := range list.Value.List {
			known[v.Text] = true
			u.names = append(u.names, v.Text)
		}
	}
	// each asks about users: question i is about the user about[i]. It passes on the answers of servers
	// that have refused nothing so far.
	each := func(about []string, commands [][]string, f func(*users, string, Result)) {
		if len(commands) == 0 {
			return
		}
		for _, a := range s.askAll(ctx, commands...) {
			for i, r := range a.Results {
				if u := by[a.Server]; u != nil && u.denied == nil {
					f(u, about[i], r)
				}
			}
		}
	}
	names := slices.Sorted(maps.Keys(known))
	var commands [][]string
	for _, name := range names {
		commands = append(commands, []string{"ACL", "GETUSER", name})
	}
	each(names, commands, func(u *users, name string, r Result) {
		if !slices.Contains(u.names, name) {
			return
		}
		u.denied = r.Err
		flags := flagsOf(r.Value)
		u.on[name] = slices.Contains(flags, "on")
		u.open = u.open || name == "default" && u.on[name] && slices.Contains(flags, "nopass")
	})
	for _, right := range rights {
		has := func(u *users, name, right string) bool { return slices.Contains(u.who[right], name) }
		wanted := func(u *users, name string) bool {
			return u.denied == nil && u.on[name] && !has(u, name, right.name) && (right.after == nil ||
				slices.ContainsFunc(right.after, func(right string) bool { return has(u, name, right) }))
		}
		var about []string
		var commands [][]string
		for _, name := range names {
			if !slices.ContainsFunc(all, func(u *users) bool { return wanted(u, name) }) {
				continue
			}
			for _, words := range right.commands {
				about = append(about, name)
				commands = append(commands, append([]string{"ACL", "DRYRUN", name}, words...))
			}
		}
		each(about, commands, func(u *users, name string, r Result) {
			switch {
			case !wanted(u, name):
			case r.Err != nil && strings.Contains(r.Err.Error(), "ommand '"): // the server has no such command
			case r.Err != nil:
				u.denied = r.Err
			case r.Value.Text == "OK":
				u.who[right.name] = append(u.who[right.name], name)
			}
		})
	}
	return all
}

// flagsOf returns the flags in the answer to ACL GETUSER.
func flagsOf(v Value) (flags []string) {
	for i := 0; i+1 < len(v.List); i += 2 {
		if v.List[i].Text == "flags" {
			for _, flag := range v.List[i+1].List {
				flags = append(flags, flag.Text)
			}
		}
	}
	return flags
}

// but returns the names that are not among others.
func but(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

const (
	doAskUsers = "examine it as a user with the permissions: ACL SETUSER NAME +acl|whoami +acl|users +acl|getuser +acl|dryrun (Redis 7 or later). Or read the answer to ACL LIST: "
	doOpen     = "give the user default a password (requirepass), or ACL SETUSER default off"
)

// judge reports on the sessions' channels.
func (u *users) judge(f *doctor.Findings) {
	const code = "redis.users"
	const open = "the user default is on and needs no password: every client that reaches the server is that user"
	const why = "a user that can publish to a session and knows its requests can make a waiter believe that it holds the lock"
	forgers := slices.DeleteFunc(but(u.who[mayPublish], u.who[mayLock]),
		func(name string) bool { return !slices.Contains(u.who[mayKnow], name) })
	switch {
	case u.denied != nil:
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear,
			Found: "which other users may publish to sessions could not be found out: " + u.denied.Error(), Why: why,
			Do: doAskUsers + "no other user may have PUBLISH and the channels of holdfast (&*)"})
	case len(forgers) > 0:
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: "users that may take no locks may publish to sessions, and know what to publish: " +
				strings.Join(forgers, ", "),
			Why: why,
			Do:  "ACL SETUSER NAME resetchannels, and the channels that it needs, for each of them; set acl-pubsub-default to resetchannels"})
	case u.open && u.me != "default":
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers, Found: open,
			Why: "every client that reaches the server may do what that user may, whatever the passwords of other users",
			Do:  doOpen})
	case u.open:
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, Found: open + ". Which clients can reach it is unknown",
			Why: "such a client can end or forge every lock",
			Do:  doOpen + ". Or let no client reach the server that may not lock"})
	default:
		f.Fine(code, "all users that may publish to sessions, and know what to publish, may take locks (%s)",
			strings.Join(u.who[mayLock], ", "))
	}
}

const sentinelCode, whyLeads, doLeads = "redis.sentinels",
	"one message on " + hello + " leads all clients to another server, which knows none of the grants",
	"For each other user ACL SETUSER NAME resetchannels, and the channels that it needs, at servers and sentinels"

// leaders reports on the channel of sentinels. alone is true if nothing else is reported about this
// server.
func (u *users) leaders(f *doctor.Findings, alone bool) {
	const code = sentinelCode
	const open = "the user default is on, needs no password, and may publish on " + hello
	strangers := but(u.who[mayPose], u.who[mayLead])
	exposed := alone && u.open && slices.Contains(u.who[mayPose], "default")
	switch {
	case u.denied != nil:
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, MayEndanger: true,
			Found: "which users may publish on " + hello + " could not be found out: " + u.denied.Error(),
			Why:   whyLeads, Do: doAskUsers + "no user but that of the sentinels may have PUBLISH and this channel (&*)"})
	case len(strangers) > 0:
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("users other than sentinels may publish on %s: %s", hello, strings.Join(strangers, ", ")),
			Why:   whyLeads, Do: doLeads})
	case exposed && u.me != "default":
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers, Found: open, Why: whyLeads, Do: doOpen})
	case exposed:
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, Found: open + ". Which clients can reach it is unknown",
			Why: whyLeads,
			Do:  doOpen + ". Or let only their clients reach the sentinels"})
	default:
		f.Fine(code, "only sentinels may publish on %s (%s)", hello, strings.Join(u.who[mayPose], ", "))
	}
}
