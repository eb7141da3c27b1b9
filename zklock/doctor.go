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
	"github.com/holdfast-lock/holdfast/internal/zk"
)

var _ driver.Diagnoser = (*Backend)(nil)

// serverInfo is what one server of the Config reports about itself.
type serverInfo struct {
	addr     string
	err      error             // why the server cannot be reached
	mode     string            // "leader", "follower", "observer", "standalone", "read-only"; "": unknown
	srvr     map[string]string // of the commands srvr, conf and mntr; nil without an answer
	conf     map[string]string
	mntr     map[string]string
	noAnswer string // why an answer is missing
}

// Diagnose implements [driver.Diagnoser]. It opens a session and sends each server the four-letter
// words srvr, conf and mntr.
func (b *Backend) Diagnose(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	if ttl < driver.MinTTL || ttl > driver.MaxTTL {
		return nil, invalid("ttl %v: allowed are %v to %v", ttl, driver.MinTTL, driver.MaxTTL)
	}
	asked := b.want
	if asked == 0 {
		asked = ttl
	}
	const dialLimit = 10 * time.Second // dial tries until the context ends
	limited, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	l, err := b.dial(limited, asked)
	if err != nil {
		return nil, err
	}
	defer closeUnused(l)
	var f doctor.Findings
	all, err := b.queryServers(ctx)
	if err != nil {
		return nil, explain(err)
	}
	b.ensemble(ctx, &f, l, all)
	ticks(&f, all, l.Timeout())
	checkTimeout(&f, asked, l.Timeout())
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
	if err := checkACLs(ctx, &f, l); err != nil {
		return f.List, explain(err)
	}
	slowest, err := doctor.Slowest(ctx, 10, func(ctx context.Context) error { return l.Sync(ctx, "/") })
	if err != nil {
		return f.List, explain(err)
	}
	f.Latency("zookeeper.latency", slowest, 10, l.Timeout()*3/5)
	return f.List, nil
}

// wordLimit is how long servers may take to answer a four-letter word.
const wordLimit = 3 * time.Second

// queryServers sends the words to every server.
func (b *Backend) queryServers(ctx context.Context) ([]*serverInfo, error) {
	var all []*serverInfo
	by := map[string]*serverInfo{}
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
				m = &serverInfo{addr: r.Server}
				all, by[r.Server] = append(all, m), m
			}
			switch {
			case r.Err != nil && word == "srvr":
				m.err = r.Err
			case r.Err != nil, strings.Contains(r.Text, "whitelist"), r.Text == "":
				m.noAnswer = fmt.Sprintf("it does not answer %s", word)
				if text := strings.TrimSpace(r.Text); text != "" {
					m.noAnswer += ": " + text
				} else if r.Err != nil {
					m.noAnswer += ": " + r.Err.Error()
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

// voters returns how many servers vote, as the ensemble's configuration says; 0 for a single
// server, or if the configuration cannot be read.
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

func (b *Backend) ensemble(ctx context.Context, f *doctor.Findings, l *link, all []*serverInfo) {
	const one, size = "zookeeper.one-ensemble", "zookeeper.ensemble"
	leaders, singles, unanswered, reached := 0, 0, 0, 0
	for _, m := range all {
		switch {
		case m.err != nil:
			f.Add(driver.Finding{Code: "zookeeper.reach", Severity: driver.Slows, Server: m.addr,
				Found: "the server does not answer: " + m.err.Error(),
				Why:   "clients of the other servers have one server less to go to when theirs fails",
				Do:    "start it, remove it from the URL, or find out why it cannot be reached from here"})
			continue
		case m.mode == "":
			unanswered++
		case m.mode == "standalone":
			singles++
		case m.mode == "leader":
			leaders++
		}
		reached++
	}
	n := voters(ctx, l)
	switch {
	case leaders+singles > 1:
		f.Add(driver.Finding{Code: one, Severity: driver.Endangers,
			Found: fmt.Sprintf("%d servers in the URL are standalone or leaders: they do not belong to one ensemble",
				leaders+singles),
			Why: "each client locks at the server that it happens to reach, so two clients can hold one lock",
			Do:  "name servers of one ensemble only; if these servers should be one, give them all the same server.N lines"})
	case unanswered > 0 && n == 0 && len(all) > 1:
		f.Add(driver.Finding{Code: one, Severity: driver.Unclear, MayEndanger: true,
			Found: "whether the servers belong to one ensemble is not known: " + all[0].noAnswer,
			Why:   "if they do not, each client locks at the server that it happens to reach", Do: whitelist})
	default:
		f.Fine(one, "the servers that answer (%d) belong to one ensemble", reached)
	}
	switch {
	case n > 1 && n%2 == 0:
		f.Add(driver.Finding{Code: size, Severity: driver.Slows, Found: fmt.Sprintf("%d servers vote, an even number", n),
			Why: fmt.Sprintf(
				"as many may fail as with %d servers, and there is one more that can fail: locks are available less often", n-1),
			Do: "add a server, or remove one"})
	case n > 2:
		f.Fine(size, "%d servers vote; %d of them may fail", n, (n-1)/2)
	case n == 1, singles > 0:
		f.Add(driver.Finding{Code: size, Severity: driver.Slows, Found: "there is a single server",
			Why: "while it is down nothing can be locked, and sessions whose timeout passes are lost; if its disk is lost, all grants are forgotten",
			Do:  "an ensemble of three, on three machines"})
	default:
		f.Add(driver.Finding{Code: size, Severity: driver.Unclear, Found: "how many servers vote is not known",
			Why: "if only one votes, nothing can be locked while it is down", Do: whitelist})
	}
	if named := len(all); n > named {
		f.Add(driver.Finding{Code: "zookeeper.servers", Severity: driver.Slows,
			Found: fmt.Sprintf("the URL names %d of %d servers", named, n),
			Why:   "when those fail, or are cut off from the majority, this client reaches no other server, and loses its leases",
			Do:    "name all of them in the URL, separated by commas"})
	} else if n > 0 {
		f.Fine("zookeeper.servers", "the URL names all servers that vote")
	}
}

const whitelist = "4lw.commands.whitelist=srvr, conf, mntr in zoo.cfg, and restart; or ask an administrator for the answers"

// ticks finds out how short sessions may be.
func ticks(f *doctor.Findings, all []*serverInfo, granted time.Duration) {
	const code = "zookeeper.ticks"
	muted := ""
	var lowest time.Duration
	for _, m := range all {
		tick, err := strconv.ParseInt(m.conf["tickTime"], 10, 32)
		if err != nil || tick <= 0 {
			muted = m.noAnswer
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
			Found: fmt.Sprintf("minSessionTimeout is %d ms, less than two ticks (tickTime is %d ms); this session got %v",
				shortest, tick, granted),
			Why: "the other servers report their clients to the leader only every half tick: a session shorter than two ticks may end while its client relies on it",
			Do:  "leave minSessionTimeout at its default of two ticks, and ask for sessions (--ttl, session=) of at least that"})
		return
	}
	if lowest == 0 {
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear,
			Found: "tickTime and minSessionTimeout are not known: " + muted,
			Why:   "sessions shorter than two ticks may end while their client relies on them; by default servers grant none",
			Do:    whitelist})
		return
	}
	f.Fine(code, "sessions last at least two ticks (minSessionTimeout is %v)", lowest)
}

// checkTimeout compares the session timeout that was granted with the one that was asked for.
func checkTimeout(f *doctor.Findings, asked, granted time.Duration) {
	const code = "zookeeper.session"
	trusted := (granted * 3 / 5).Round(time.Millisecond)
	switch {
	case granted > asked:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("the servers raised the session timeout from %v to %v", asked, granted),
			Why: fmt.Sprintf("the locks of a dead client are free after %v, or up to a tick later, not after %v", granted,
				asked),
			Do: "set a lower minSessionTimeout (at least two ticks) and tickTime in zoo.cfg, or ask for this timeout (--ttl, session=)"})
	case granted < asked:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("the servers lowered the session timeout from %v to %v", asked, granted),
			Why: fmt.Sprintf(
				"clients trust their leases for %v after the last answer: they lose their locks in a shorter outage than planned",
				trusted),
			Do: "set a higher maxSessionTimeout in zoo.cfg (20 ticks by default), or ask for less (--ttl, session=)"})
	default:
		f.Fine(code, "the session timeout is %v, as asked for; clients trust their leases for %v", granted, trusted)
	}
}

func (m *serverInfo) version(f *doctor.Findings, several bool) {
	const code = "zookeeper.version"
	text, _, _ := strings.Cut(m.srvr["Zookeeper version"], ",")
	text, _, _ = strings.Cut(text, "-")
	var major, minor, patch int
	_, err := fmt.Sscanf(text, "%d.%d.%d", &major, &minor, &patch)
	at := major*1_000_000 + minor*1000 + patch
	switch {
	case err != nil:
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, Found: "the server's version is not known: " + m.noAnswer,
			Why: "servers before 3.5.3 have no container nodes, so empty folders of dead clients stay", Do: whitelist})
	case at < 3_005_003:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: "the server is ZooKeeper " + text,
			Why: "it has no container nodes: empty folders of dead clients stay", Do: "upgrade to 3.5.3 or later"})
	case at == 3_008_000 && several:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: "the server is ZooKeeper 3.8.0",
			Why: "it has ZOOKEEPER-4537: a request at a follower may hang until the client sends the next one, here after a sixteenth of the session timeout", Do: "upgrade to 3.8.1 or later"})
	default:
		f.Fine(code, "ZooKeeper %s, %s", text, m.mode)
	}
}

// fsync finds out whether the server forces its log to the disk. No word reports this. But the
// server counts how often it did so, and it must have done so for this session.
func (b *Backend) fsync(ctx context.Context, f *doctor.Findings, m *serverInfo, l *link) {
	const code, count = "zookeeper.fsync", "zk_cnt_fsynctime"
	text, known := m.mntr[count]
	for try := 0; known && text == "0" && try < 10; try++ {
		// A follower may be behind.
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
			reason = m.noAnswer
		}
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear,
			Found: "whether the server forces its log to the disk is not known: " + reason,
			Why:   "by default it does. If not (forceSync=no), a power cut at a majority of the servers makes the ensemble forget grants",
			Do:    "make sure that the servers are not started with -Dzookeeper.forceSync=no. " + whitelist})
	case text == "0":
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: "the server does not force its log to the disk (forceSync=no): it opened a session without doing so",
			Why:   "a power cut at a majority of the servers makes the ensemble forget grants, and grant the locks again",
			Do:    "start it without -Dzookeeper.forceSync=no"})
	default:
		f.Fine(code, "the server forces its log to the disk; it has done so %s times", text)
	}
}

func (m *serverInfo) connections(f *doctor.Findings) {
	const code = "zookeeper.connections"
	limit, err := strconv.Atoi(m.conf["maxClientCnxns"])
	switch {
	case err != nil:
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear,
			Found: "how many connections the server accepts from one address is not known: " + m.noAnswer,
			Why:   "each client has one, and an examination another; the default is 60", Do: whitelist})
	case limit > 0 && limit < 20:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: fmt.Sprintf("maxClientCnxns is %d", limit),
			Why: "the server accepts so many connections from one address: it refuses further clients there, and clients that connect again; these lose their leases",
			Do:  "set maxClientCnxns=0 (no limit) in zoo.cfg, or twice the number of processes at one address that lock"})
	case limit == 0:
		f.Fine(code, "the server accepts any number of connections from one address")
	default:
		f.Fine(code, "the server accepts %d connections from one address (maxClientCnxns)", limit)
	}
}

// enforcement finds out whether the servers enforce ACLs. In one step it creates a node that nobody
// may change, and changes it. The step must fail as a whole.
func enforcement(ctx context.Context, f *doctor.Findings, l *link) error {
	const code = "zookeeper.acl"
	for dir := l.b.root; ; dir = strings.TrimSuffix(parent(dir), "/") {
		path := dir + "/" + sealNode
		done, err := l.Multi(ctx,
			zk.CreateOp(path, nil, zk.Ephemeral, l.b.readers), zk.SetOp(path, nil, zk.AnyVersion),
			zk.DeleteOp(path, zk.AnyVersion))
		denied := func(i int) bool { return len(done) > i && errors.Is(done[i].Err, zk.ErrNoAuth) }
		switch {
		case err == nil:
			f.Add(aclsNotEnforced(l.b))
			return nil
		case denied(0), denied(1):
			f.Fine(code, "the servers enforce ACLs")
			return nil
		case errors.Is(err, zk.ErrNoNode) && dir != "":
			continue
		case errors.Is(err, zk.ErrConnectionLoss), errors.Is(err, zk.ErrNotSent), errors.Is(err, zk.ErrSessionExpired):
			return err
		}
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear,
			Found: fmt.Sprintf("whether the servers enforce ACLs is not known: %v", err),
			Why:   "if they do not, a woken waiter must list the queue",
			Do:    "make sure that the servers are started without -Dzookeeper.skipACL=yes"})
		return nil
	}
}

// aclsNotEnforced returns the finding that ACLs are not enforced.
func aclsNotEnforced(b *Backend) driver.Finding {
	const found, do = "the servers do not enforce ACLs (skipACL)", "start the servers without -Dzookeeper.skipACL=yes"
	if len(b.acl) > 0 && b.acl[0].Scheme == "digest" {
		return driver.Finding{Code: "zookeeper.acl", Severity: driver.Endangers,
			Found: found + ", though the URL asks for private nodes",
			Why:   "everybody who reaches the servers can delete a holder's node, and take its lock", Do: do}
	}
	return driver.Finding{Code: "zookeeper.acl", Severity: driver.Slows, Found: found,
		Why: "a holder's release looks like anybody's change, so a woken waiter must list the queue", Do: do}
}
