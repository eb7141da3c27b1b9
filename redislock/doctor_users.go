package redislock

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

// A SentinelAsker is an Asker that can ask the sentinels behind it, too.
type SentinelAsker interface {
	Asker

	// Sentinels returns an Asker of the sentinels that lead to the primary, nil if there are none, and a function that
	// closes its connections. Its Servers are sentinels.
	Sentinels() (Asker, func())
}

// hello is the channel on which sentinels tell each other, and their clients, who is the primary.
const hello = "__sentinel__:hello"

// users is what is found out about the users of one server.
type users struct {
	server string
	denied error
	me     string
	names  []string
	open   bool                // the user default is on and needs no password
	who    map[string][]string // the users that have a right
}

// right is what users may have: who has it may run one of its commands. It is asked for only of those who have one of
// the rights after which it comes.
type right struct {
	name     string
	after    []string
	commands [][]string
}

// What users may do.
const (
	mayTell  = "publish to sessions"
	mayHear  = "know what to publish"
	mayLock  = "write the records"
	mayGreet = "publish what sentinels publish"
	mayLead  = "do what sentinels do"
)

// lookAtUsers tells who could make a waiter believe that it holds a lock, though the user may take none, and who
// could lead clients to another server.
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
		right{mayTell, nil, [][]string{{publish, channel, "0"}}},
		right{mayHear, []string{mayTell}, [][]string{{subscribe, channel}, {"PSUBSCRIBE", channel}, {"MONITOR"},
			{"GET", key}, {"HGET", key, "x"}, {"HGETALL", key}, {"ZRANGE", key, "0", "0"}, {"DUMP", key}}},
		right{mayLock, []string{mayHear}, [][]string{{"SET", key, "x"}, {"HSET", key, "x", "x"}}},
		right{mayGreet, nil, [][]string{{"PUBLISH", hello, "x"}}},
		right{mayLead, []string{mayGreet}, [][]string{{"SLAVEOF", "NO", "ONE"}}},
	) {
		f.Server = u.server
		u.judge(f)
		if watched[u.server] {
			u.leaders(f, false) // what else it means that the user default is open, judge has said
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
				Found: "sentinels watch the server, and who may publish at them could not be found out: this client does not lead to them",
				Why:   whyLeads + ". By default everybody who reaches a sentinel may", Do: "examine it by a URL of the sentinels (redis+sentinel://). " + doLeads})
		}
		return
	}
	for _, u := range usersOf(ctx, asking{sentinels},
		right{mayGreet, nil, [][]string{{"PUBLISH", hello, "x"}}},
		right{mayLead, []string{mayGreet}, [][]string{{"SENTINEL", "IS-MASTER-DOWN-BY-ADDR", "127.0.0.1", "1", "0", "*"}}},
	) {
		f.Server = u.server
		u.leaders(f, true)
	}
	f.Server = ""
}

// usersOf asks every server for its users, and for who has which rights.
func usersOf(ctx context.Context, asker Asker, rights ...right) (all []*users) {
	const most = 200
	by := map[string]*users{}
	for _, a := range asker.Ask(ctx, "ACL", "WHOAMI") {
		u := &users{server: a.Server, denied: a.Err, me: a.Value.Text, who: map[string][]string{}}
		all, by[a.Server] = append(all, u), u
	}
	// each asks all servers, and gives the answers of those that have refused nothing so far.
	each := func(f func(*users, Answer), words ...string) {
		for _, a := range asker.Ask(ctx, words...) {
			if u := by[a.Server]; u != nil && u.denied == nil {
				f(u, a)
			}
		}
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
					return on[u] && u.denied == nil && !has(right.name) && (right.after == nil || slices.ContainsFunc(right.after, has))
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

// flagsOf are the flags in the answer to ACL GETUSER.
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

// but are the names that are not among others.
func but(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

const (
	doAskUsers = "examine it as a user who may: ACL SETUSER NAME +acl|whoami +acl|users +acl|getuser +acl|dryrun (Redis 7 or later). Or see what ACL LIST says: "
	doOpen     = "give the user default a password (requirepass), or ACL SETUSER default off"
)

// judge is about the sessions' channels.
func (u *users) judge(f *doctor.Findings) {
	const code = "redis.users"
	const open = "the user default is on and needs no password: everybody who reaches the server is that user"
	const why = "whoever can publish to a session, and knows its requests, makes a waiter believe that it holds the lock"
	forgers := slices.DeleteFunc(but(u.who[mayTell], u.who[mayLock]), func(name string) bool { return !slices.Contains(u.who[mayHear], name) })
	switch {
	case u.denied != nil:
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, Found: "who else may publish to sessions could not be found out: " + u.denied.Error(), Why: why,
			Do: doAskUsers + "no other user may have PUBLISH and our channels (&*)"})
	case len(forgers) > 0:
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers, Found: "users that may take no locks may publish to sessions, and know what: " + strings.Join(forgers, ", "),
			Why: why, Do: "ACL SETUSER NAME resetchannels, and the channels that it needs, for each of them; set acl-pubsub-default to resetchannels"})
	case u.open && u.me != "default":
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers, Found: open, Why: "whoever can reach it may do what that user may, whatever the passwords of others", Do: doOpen})
	case u.open:
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, Found: open + ". Who can reach it could not be found out",
			Why: "whoever can may end or forge every lock", Do: doOpen + ". Or let nobody reach the server who may not lock"})
	default:
		f.Fine(code, "nobody may publish to sessions, and know what, who may not take locks (%s)", strings.Join(u.who[mayLock], ", "))
	}
}

const sentinelCode, whyLeads, doLeads = "redis.sentinels",
	"one message on " + hello + " leads all clients to another server, which knows nothing of who holds what",
	"For each other user ACL SETUSER NAME resetchannels, and the channels that it needs, at servers and sentinels"

// leaders is about the channel of sentinels. alone says that nothing else is said about this server.
func (u *users) leaders(f *doctor.Findings, alone bool) {
	const code = sentinelCode
	const open = "the user default is on, needs no password, and may publish on " + hello
	strangers := but(u.who[mayGreet], u.who[mayLead])
	exposed := alone && u.open && slices.Contains(u.who[mayGreet], "default")
	switch {
	case u.denied != nil:
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, MayEndanger: true, Found: "who may publish on " + hello + " could not be found out: " + u.denied.Error(),
			Why: whyLeads, Do: doAskUsers + "no user but that of the sentinels may have PUBLISH and this channel (&*)"})
	case len(strangers) > 0:
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers, Found: fmt.Sprintf("users that are no sentinels may publish on %s: %s", hello, strings.Join(strangers, ", ")),
			Why: whyLeads, Do: doLeads})
	case exposed && u.me != "default":
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers, Found: open, Why: whyLeads, Do: doOpen})
	case exposed:
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, Found: open + ". Who can reach it could not be found out", Why: whyLeads,
			Do: doOpen + ". Or let nobody reach the sentinels but their clients"})
	default:
		f.Fine(code, "nobody but sentinels may publish on %s (%s)", hello, strings.Join(u.who[mayGreet], ", "))
	}
}
