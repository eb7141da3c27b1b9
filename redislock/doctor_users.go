package redislock

import (
	"cmp"
	"context"
	"fmt"
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
func (b *Backend) lookAtUsers(ctx context.Context, asker Asker, f *doctor.Findings) {
	session, key := "s:doctor", b.prefix+"doctor"
	channel, publish, subscribe := b.prefix+session, "PUBLISH", "SUBSCRIBE"
	if b.cluster {
		c := newCall().tag(b.prefix, 0).str(session).end().tag(b.prefix, 0).str("doctor").end().done()
		channel, key = strings.Clone(c.strs[0]), strings.Clone(c.strs[1])
		c.free()
		publish, subscribe = "SPUBLISH", "SSUBSCRIBE"
	}
	watched := map[string]bool{}
	for _, a := range asker.Ask(ctx, "PUBSUB", "NUMSUB", hello) {
		if a.Err == nil && len(a.Value.List) == 2 && a.Value.List[1].Int > 0 {
			watched[a.Server] = true
		}
	}
	for _, u := range usersOf(ctx, asker,
		right{mayPublish, nil, [][]string{{publish, channel, "0"}}},
		right{mayKnow, []string{mayPublish}, [][]string{{subscribe, channel}, {"PSUBSCRIBE", channel}, {"MONITOR"},
			{"GET", key}, {"HGET", key, "x"}, {"HGETALL", key}, {"ZRANGE", key, "0", "0"}, {"DUMP", key}}},
		right{mayLock, []string{mayKnow}, [][]string{{"SET", key, "x"}, {"HSET", key, "x", "x"}}},
		right{mayPose, nil, [][]string{{"PUBLISH", hello, "x"}}},
		right{mayLead, []string{mayPose}, [][]string{{"SLAVEOF", "NO", "ONE"}}},
	) {
		f.Server = u.server
		u.judge(f)
		if watched[u.server] {
			u.leaders(f, false) // judge has reported the other consequences of an open user default
		}
	}
	f.Server = ""
	lookAtSentinels(ctx, asker, len(watched) > 0, f)
}

// lookAtSentinels is lookAtUsers for the sentinels themselves.
func lookAtSentinels(ctx context.Context, asker Asker, watched bool, f *doctor.Findings) {
	if a, ok := asker.(asking); ok {
		asker = a.Asker
	}
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
	for _, u := range usersOf(ctx, asking{sentinels},
		right{mayPose, nil, [][]string{{"PUBLISH", hello, "x"}}},
		right{mayLead, []string{mayPose}, [][]string{{"SENTINEL", "IS-MASTER-DOWN-BY-ADDR", "127.0.0.1", "1", "0", "*"}}},
	) {
		f.Server = u.server
		u.leaders(f, true)
	}
	f.Server = ""
}

// usersOf asks every server for its users, and which of them have which rights.
func usersOf(ctx context.Context, asker Asker, rights ...right) (all []*users) {
	const most = 200
	by := map[string]*users{}
	for _, a := range asker.Ask(ctx, "ACL", "WHOAMI") {
		u := &users{server: a.Server, denied: a.Err, me: a.Value.Text, who: map[string][]string{}}
		all, by[a.Server] = append(all, u), u
	}
	// each asks all servers, and passes on the answers of those that have refused nothing so far.
	// It leaves out servers that the client does not lead to any more.
	each := func(f func(*users, Answer), words ...string) {
		asked := map[*users]bool{}
		for _, a := range asker.Ask(ctx, words...) {
			u := by[a.Server]
			if asked[u] = true; u != nil && u.denied == nil {
				f(u, a)
			} else if u == nil && a.Server == "" && a.Err != nil { // none was asked
				for _, u := range all {
					u.denied, asked[u] = cmp.Or(u.denied, a.Err), true
				}
			}
		}
		all = slices.DeleteFunc(all, func(u *users) bool { return u.denied == nil && !asked[u] })
	}
	names := map[string]bool{}
	each(func(u *users, a Answer) {
		if u.denied = a.Err; len(a.Value.List) > most {
			u.denied = fmt.Errorf("there are %d users, and no more than %d are looked at", len(a.Value.List), most)
			return
		}
		for _, v := range a.Value.List {
			names[v.Text] = true
			u.names = append(u.names, v.Text)
		}
	}, "ACL", "USERS")
	for name := range names {
		on := map[*users]bool{}
		each(func(u *users, a Answer) {
			if !slices.Contains(u.names, name) {
				return
			}
			if u.denied = a.Err; a.Err != nil {
				return
			}
			flags := flagsOf(a.Value)
			on[u] = slices.Contains(flags, "on")
			u.open = u.open || name == "default" && on[u] && slices.Contains(flags, "nopass")
		}, "ACL", "GETUSER", name)
		for _, right := range rights {
			for _, words := range right.commands {
				wanted := func(u *users) bool {
					has := func(right string) bool { return slices.Contains(u.who[right], name) }
					return on[u] && u.denied == nil && !has(right.name) &&
						(right.after == nil || slices.ContainsFunc(right.after, has))
				}
				if !slices.ContainsFunc(all, wanted) {
					break
				}
				each(func(u *users, a Answer) {
					switch {
					case !wanted(u):
					case a.Err != nil && strings.Contains(a.Err.Error(), "ommand '"): // the server has no such command
					case a.Err != nil:
						u.denied = a.Err
					case a.Value.Text == "OK":
						u.who[right.name] = append(u.who[right.name], name)
					}
				}, append([]string{"ACL", "DRYRUN", name}, words...)...)
			}
		}
	}
	for _, u := range all {
		for _, names := range u.who {
			slices.Sort(names)
		}
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
