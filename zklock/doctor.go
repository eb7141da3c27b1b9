package zklock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
	"github.com/holdfast-lock/holdfast/zklock/internal/zk"
)

var _ driver.Diagnoser = (*Backend)(nil)

// member is one server of those that the Config names, and what it says of itself.
type member struct {
	addr  string
	err   error             // it cannot be reached
	mode  string            // "leader", "follower", "observer", "standalone", "read-only"; "" if it does not say
	srvr  map[string]string // of the words srvr, conf and mntr; nil if it does not answer that
	conf  map[string]string
	mntr  map[string]string
	muted string // why it says nothing
}

// Diagnose implements [driver.Diagnoser]. It opens a session and asks each server the words srvr, conf and mntr.
func (b *Backend) Diagnose(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	if ttl < driver.MinTTL || ttl > driver.MaxTTL {
		return nil, invalid("ttl %v: allowed are %v to %v", ttl, driver.MinTTL, driver.MaxTTL)
	}
	asked := b.want
	if asked == 0 {
		asked = ttl
	}
	const patience = 10 * time.Second // a session is asked for until the context ends
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, err := b.dial(limited, asked)
	if err != nil {
		return nil, err
	}
	defer hangUp(l)
	var f doctor.Findings
	all, err := b.members(ctx)
	if err != nil {
		return nil, explain(err)
	}
	b.ensemble(ctx, &f, l, all)
	ticks(&f, all, l.Timeout())
	bargain(&f, asked, l.Timeout())
	for _, m := range all {
		if f.Server = m.addr; m.err == nil {
			m.version(&f, len(all) > 1 || m.mode != "standalone")
			b.fsync(ctx, &f, m, l)
			m.connections(&f)
		}
	}
	f.Server = ""
	if err := enforcement(ctx, &f, l); err != nil {
		return f.List, explain(err)
	}
	if err := lookAtACLs(ctx, &f, l); err != nil {
		return f.List, explain(err)
	}
	slowest, err := doctor.Slowest(ctx, 10, func(ctx context.Context) error { return l.Sync(ctx, "/") })
	if err != nil {
		return f.List, explain(err)
	}
	f.Latency("zookeeper.latency", slowest, 10, l.Timeout()*3/5)
	return f.List, nil
}

// wordLimit is how long servers may take to answer a word.
const wordLimit = 3 * time.Second

// members asks every server.
func (b *Backend) members(ctx context.Context) ([]*member, error) {
	var all []*member
	by := map[string]*member{}
	for _, word := range []string{"srvr", "conf", "mntr"} {
		limited, cancel := context.WithTimeout(ctx, wordLimit)
		replies, err := zk.Word(limited, b.cfg, word)
		cancel()
		if err != nil {
			return nil, err
		}
		for _, r := range replies {
			m := by[r.Server]
			if m == nil {
				m = &member{addr: r.Server}
				all, by[r.Server] = append(all, m), m
			}
			switch {
			case r.Err != nil && word == "srvr":
				m.err = r.Err
			case r.Err != nil, strings.Contains(r.Text, "whitelist"), r.Text == "":
				m.muted = fmt.Sprintf("it does not answer %s", word)
				if text := strings.TrimSpace(r.Text); text != "" {
					m.muted += ": " + text
				} else if r.Err != nil {
					m.muted += ": " + r.Err.Error()
				}
			default:
				map[string]func(map[string]string){
					"srvr": func(v map[string]string) { m.srvr, m.mode = v, v["Mode"] },
					"conf": func(v map[string]string) { m.conf = v },
					"mntr": func(v map[string]string) { m.mntr = v },
				}[word](pairs(r.Text))
			}
		}
	}
	return all, nil
}

// pairs reads lines such as "Mode: leader", "tickTime=2000" and "zk_version\t3.8.0".
func pairs(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if i := strings.IndexAny(line, ":=\t"); i > 0 {
			m[strings.TrimSpace(line[:i])] = strings.TrimSpace(line[i+1:])
		}
	}
	return m
}

// voters are those of the ensemble that vote, as the servers have it; none if there is a single server, or
// they do not say.
func voters(ctx context.Context, l *link) (n int) {
	nodes, _ := l.GetAll(ctx, nil, "/zookeeper/config") // since 3.5
	if len(nodes) != 1 || nodes[0].Err != nil {
		return 0
	}
	for line := range strings.Lines(string(nodes[0].Data)) {
		if strings.HasPrefix(line, "server.") && !strings.Contains(line, "observer") {
			n++
		}
	}
	return n
}

func (b *Backend) ensemble(ctx context.Context, f *doctor.Findings, l *link, all []*member) {
	const one, size = "zookeeper.one-ensemble", "zookeeper.ensemble"
	heads, singles, silent, reached := 0, 0, 0, 0
	for _, m := range all {
		switch {
		case m.err != nil:
			f.Add(driver.Finding{Code: "zookeeper.reach", Severity: driver.Slows, Server: m.addr, Found: "the server does not answer: " + m.err.Error(),
				Why: "clients that are connected to others have one less to turn to when theirs fails", Do: "start it, take it out of the URL, or see why it cannot be reached from here"})
			continue
		case m.mode == "":
			silent++
		case m.mode == "standalone":
			singles++
		case m.mode == "leader":
			heads++
		}
		reached++
	}
	n := voters(ctx, l)
	switch {
	case heads+singles > 1:
		f.Add(driver.Finding{Code: one, Severity: driver.Endangers, Found: fmt.Sprintf("of the servers in the URL %d are alone or lead: they are not of one ensemble", heads+singles),
			Why: "each client locks at the one that it happens to reach, so two can hold one lock", Do: "name servers of one ensemble only; to servers that are meant to be one, give the same server.N lines"})
	case silent > 0 && n == 0 && len(all) > 1:
		f.Add(driver.Finding{Code: one, Severity: driver.Unclear, MayEndanger: true, Found: "whether the servers are of one ensemble could not be found out: " + all[0].muted,
			Why: "if they are not, each client locks at the one that it happens to reach", Do: whitelist})
	default:
		f.Fine(one, "the servers that answer (%d) are of one ensemble", reached)
	}
	switch {
	case n > 1 && n%2 == 0:
		f.Add(driver.Finding{Code: size, Severity: driver.Slows, Found: fmt.Sprintf("%d servers vote, an even number", n),
			Why: fmt.Sprintf("one may fail for each that may fail of %d, and there is one more that can: locks are available less often, not more", n-1), Do: "add one, or take one away"})
	case n > 2:
		f.Fine(size, "%d servers vote; %d of them may fail", n, (n-1)/2)
	case n == 1, singles > 0:
		f.Add(driver.Finding{Code: size, Severity: driver.Slows, Found: "there is a single server",
			Why: "while it is down nothing can be locked, and sessions are lost if that takes longer than they last; if its disk is lost, who holds what is forgotten",
			Do:  "an ensemble of three, on three machines"})
	default:
		f.Add(driver.Finding{Code: size, Severity: driver.Unclear, Found: "how many servers vote could not be found out",
			Why: "if only one does, nothing can be locked while it is down", Do: whitelist})
	}
	if named := len(all); n > named {
		f.Add(driver.Finding{Code: "zookeeper.servers", Severity: driver.Slows, Found: fmt.Sprintf("the URL names %d of %d servers", named, n),
			Why: "when those fail, or do not belong to the majority, this client reaches no other, and loses its leases", Do: "name all of them in the URL, separated by commas"})
	} else if n > 0 {
		f.Fine("zookeeper.servers", "the URL names all servers that vote")
	}
}

const whitelist = "4lw.commands.whitelist=srvr, conf, mntr in zoo.cfg, and restart; or ask an administrator for the answers"

// ticks is about how short sessions may be.
func ticks(f *doctor.Findings, all []*member, granted time.Duration) {
	const code = "zookeeper.ticks"
	muted := ""
	var lowest time.Duration
	for _, m := range all {
		tick, err := strconv.ParseInt(m.conf["tickTime"], 10, 32)
		if err != nil || tick <= 0 {
			muted = m.muted
			continue
		}
		shortest, _ := strconv.ParseInt(m.conf["minSessionTimeout"], 10, 64)
		lowest = max(lowest, time.Duration(shortest)*time.Millisecond)
		two := 2 * time.Duration(tick) * time.Millisecond
		if time.Duration(shortest)*time.Millisecond >= two {
			continue
		}
		severity := driver.Slows
		if granted < two {
			severity = driver.Endangers
		}
		f.Add(driver.Finding{Code: code, Severity: severity, Server: m.addr,
			Found: fmt.Sprintf("minSessionTimeout is %d ms, less than two ticks (tickTime is %d ms); this session got %v", shortest, tick, granted),
			Why:   "the leader hears of the clients of other servers every half tick only: a session that is shorter than two ticks may end while its client counts on it",
			Do:    "leave minSessionTimeout at its default of two ticks, and ask for sessions (--ttl, session=) of that at least"})
		return
	}
	if lowest == 0 {
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, Found: "tickTime and minSessionTimeout could not be found out: " + muted,
			Why: "sessions shorter than two ticks may end while their client counts on them; by default there are none", Do: whitelist})
		return
	}
	f.Fine(code, "sessions last two ticks at least (minSessionTimeout is %v)", lowest)
}

// bargain is about the session timeout that was granted.
func bargain(f *doctor.Findings, asked, granted time.Duration) {
	const code = "zookeeper.session"
	trusted := (granted * 3 / 5).Round(time.Millisecond)
	switch {
	case granted > asked:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: fmt.Sprintf("the servers raised the session timeout from %v to %v", asked, granted),
			Why: fmt.Sprintf("the locks of a client that dies come free after %v, and up to a tick later, not after %v", granted, asked),
			Do:  "a lower minSessionTimeout (two ticks at least) and tickTime in zoo.cfg, or ask for as much (--ttl, session=)"})
	case granted < asked:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: fmt.Sprintf("the servers lowered the session timeout from %v to %v", asked, granted),
			Why: fmt.Sprintf("clients trust their leases for %v after the last answer: a shorter outage than was reckoned with costs them their locks", trusted),
			Do:  "a higher maxSessionTimeout in zoo.cfg (20 ticks by default), or ask for less (--ttl, session=)"})
	default:
		f.Fine(code, "the session timeout is %v, as asked for; leases are trusted for %v", granted, trusted)
	}
}

func (m *member) version(f *doctor.Findings, several bool) {
	const code = "zookeeper.version"
	text, _, _ := strings.Cut(m.srvr["Zookeeper version"], ",")
	text, _, _ = strings.Cut(text, "-")
	var major, minor, patch int
	_, err := fmt.Sscanf(text, "%d.%d.%d", &major, &minor, &patch)
	at := major*1_000_000 + minor*1000 + patch
	switch {
	case err != nil:
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, Found: "the server's version could not be found out: " + m.muted,
			Why: "before 3.5.3 servers lack what keeps folders from being left behind", Do: whitelist})
	case at < 3_005_003:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: "the server is ZooKeeper " + text,
			Why: "it has no container nodes: folders of clients that died stay", Do: "upgrade to 3.5.3 or later"})
	case at == 3_008_000 && several:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: "the server is ZooKeeper 3.8.0",
			Why: "it has ZOOKEEPER-4537: at a follower a request may hang until the client sends the next, here a sixteenth of the session timeout later", Do: "upgrade to 3.8.1 or later"})
	default:
		f.Fine(code, "ZooKeeper %s, %s", text, m.mode)
	}
}

// fsync is about whether the server forces its log to the disk, which no word tells. But it counts how often it
// did, and has to have done so for this session.
func (b *Backend) fsync(ctx context.Context, f *doctor.Findings, m *member, l *link) {
	const code, count = "zookeeper.fsync", "zk_cnt_fsynctime"
	text, known := m.mntr[count]
	for try := 0; known && text == "0" && try < 10; try++ {
		// A follower may not have come to it yet.
		limited, cancel := context.WithTimeout(ctx, wordLimit)
		_ = l.Sync(limited, "/")
		one := b.cfg
		one.Servers = []string{m.addr}
		replies, _ := zk.Word(limited, one, "mntr")
		cancel()
		if len(replies) == 1 && replies[0].Err == nil {
			text, known = pairs(replies[0].Text)[count]
		}
	}
	switch {
	case !known:
		reason := "it is not among the answers to mntr"
		if m.mntr == nil {
			reason = m.muted
		}
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, Found: "whether the server forces its log to the disk could not be found out: " + reason,
			Why: "by default it does. If not (forceSync=no), a power cut at a majority of the servers makes the ensemble forget who holds what",
			Do:  "see that the servers are not started with -Dzookeeper.forceSync=no. " + whitelist})
	case text == "0":
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers, Found: "the server does not force its log to the disk (forceSync=no): it began a session and has never done so",
			Why: "a power cut at a majority of the servers makes the ensemble forget who holds what, and grant it again", Do: "start it without -Dzookeeper.forceSync=no"})
	default:
		f.Fine(code, "the server forces its log to the disk; it has done so %s times", text)
	}
}

func (m *member) connections(f *doctor.Findings) {
	const code = "zookeeper.connections"
	limit, err := strconv.Atoi(m.conf["maxClientCnxns"])
	switch {
	case err != nil:
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, Found: "how many connections it takes from one address could not be found out: " + m.muted,
			Why: "each client has one, and an examination another; by default there are 60", Do: whitelist})
	case limit > 0 && limit < 20:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: fmt.Sprintf("maxClientCnxns is %d", limit),
			Why: "the server takes so many connections from one address: further clients there, and those that connect again, are refused, and lose their leases",
			Do:  "maxClientCnxns=0 (any number) in zoo.cfg, or as many as there are processes that lock at one address, twice"})
	case limit == 0:
		f.Fine(code, "the server takes any number of connections from one address")
	default:
		f.Fine(code, "the server takes %d connections from one address (maxClientCnxns)", limit)
	}
}

// enforcement is about whether the servers heed ACLs: a node that nobody may change is made and changed in one
// step, which has to fail as a whole.
func enforcement(ctx context.Context, f *doctor.Findings, l *link) error {
	const code = "zookeeper.acl"
	for dir := l.b.root; ; dir = strings.TrimSuffix(parent(dir), "/") {
		path := dir + "/" + sealNode
		done, err := l.Multi(ctx,
			zk.CreateOp(path, nil, zk.Ephemeral, l.b.readers), zk.SetOp(path, nil, zk.AnyVersion), zk.DeleteOp(path, zk.AnyVersion))
		denied := func(i int) bool { return len(done) > i && errors.Is(done[i].Err, zk.ErrNoAuth) }
		switch {
		case err == nil:
			f.Add(lax(l.b))
			return nil
		case denied(0), denied(1):
			f.Fine(code, "the servers enforce ACLs")
			return nil
		case errors.Is(err, zk.ErrNoNode) && dir != "":
			continue
		case errors.Is(err, zk.ErrConnectionLoss), errors.Is(err, zk.ErrNotSent), errors.Is(err, zk.ErrSessionExpired):
			return err
		}
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, Found: fmt.Sprintf("whether the servers enforce ACLs could not be found out: %v", err),
			Why: "if they do not, who is woken has to look who is next", Do: "see that the servers are started without -Dzookeeper.skipACL=yes"})
		return nil
	}
}

// lax is what it means that ACLs are not enforced.
func lax(b *Backend) driver.Finding {
	const found, do = "the servers do not enforce ACLs (skipACL)", "start the servers without -Dzookeeper.skipACL=yes"
	if len(b.acl) > 0 && b.acl[0].Scheme == "digest" {
		return driver.Finding{Code: "zookeeper.acl", Severity: driver.Endangers, Found: found + ", though the URL asks for private nodes",
			Why: "whoever reaches the servers can delete a holder's node, and take its lock", Do: do}
	}
	return driver.Finding{Code: "zookeeper.acl", Severity: driver.Slows, Found: found,
		Why: "nobody can tell a holder's release from a stranger's change, so who is woken lists the line before it goes on", Do: do}
}
