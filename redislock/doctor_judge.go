package redislock

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

// judge reports what a server's settings mean. An error means that no lock can be taken there.
func (n *node) judge(f *doctor.Findings) error {
	if n.info["loading"] == "1" && !n.alone {
		f.Add(driver.Finding{Code: reachCode, Severity: driver.Slows, Found: "the server is loading its data",
			Why: "until it has done that, locks that it keeps can neither be taken nor renewed",
			Do:  "run the examination again when it has loaded them"})
		return nil
	}
	if n.info["loading"] == "1" {
		return fmt.Errorf("%w: %s is loading its data", driver.ErrUnavailable, n.server)
	}
	if err := n.role(f); err != nil {
		return err
	}
	n.version(f)
	n.eviction(f)
	n.persistence(f)
	n.disk(f)
	n.replicas(f)
	n.quota(f)
	n.cluster(f)
	n.connections(f)
	n.outputBuffer(f)
	n.scriptLimit(f)
	return nil
}

// unclear adds a finding that could not be made: setting is a name for CONFIG GET, or "" for INFO.
func (n *node) unclear(f *doctor.Findings, code, setting, found, why string, may bool) {
	do := "examine it as a user with the permissions: ACL SETUSER NAME +info +config|get. "
	reason := n.why
	if setting != "" {
		reason = n.denied
		do += "Or ask an administrator for the answer to CONFIG GET " + setting
	} else {
		do += "Or ask an administrator for the answer to INFO"
	}
	do += "; of a managed service, look at the parameters in its console"
	text := "the server does not know it"
	if reason != nil {
		text = reason.Error()
	}
	f.Add(driver.Finding{Code: code, Severity: driver.Unclear, MayEndanger: may,
		Found: found + " could not be found out: " + text, Why: why, Do: do})
}

func (n *node) number(key string) int64 {
	v, _ := strconv.ParseInt(n.info[key], 10, 64) // 0 if it is missing
	return v
}

func (n *node) role(f *doctor.Findings) error {
	const code = "redis.role"
	const stale = "it does not know what was granted at its primary, nor the primary what is granted here"
	switch role := n.info["role"]; {
	case n.info == nil:
		n.unclear(f, code, "", "whether the server is a primary",
			"a replica that takes writes grants locks that its primary has granted to others", false)
	case role == "master":
		f.Fine(code, "the server is a primary")
	case role == "slave" && !n.alone:
		f.Fine(code, "the server is a replica")
	case role == "slave" && n.info["slave_read_only"] != "0":
		return fmt.Errorf("%w: %s is a replica, which takes no writes; its primary is %s:%s", driver.ErrRefused, n.server,
			n.info["master_host"], n.info["master_port"])
	case role == "slave":
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("the server is a replica of %s:%s that takes writes (replica-read-only no)",
				n.info["master_host"], n.info["master_port"]),
			Why: stale, Do: "connect to the primary; set replica-read-only yes"})
	default:
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("the server calls its role %q: several servers take writes", role),
			Why:   stale, Do: "use one primary for all clients"})
	}
	return nil
}

func (n *node) version(f *doctor.Findings) {
	const code = "redis.version"
	version := n.info["redis_version"]
	var major, minor, patch int
	if parsed, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); parsed < 2 {
		n.unclear(f, code, "", "the server's version",
			"the scripts are made for Redis 6.2 and later, and what is compatible with it", false)
		return
	}
	name := "Redis " + version
	for _, other := range []string{"valkey", "dragonfly", "keydb"} {
		if v := n.info[other+"_version"]; v != "" {
			name = fmt.Sprintf("%s %s, which stands in for Redis %s", other, v, version)
		}
	}
	if major < 6 || major == 6 && minor < 2 {
		f.Add(driver.Finding{Code: code, Severity: driver.Unclear, MayEndanger: true, Found: "the server is " + name,
			Why: "the scripts are made for 6.2 and later; earlier servers were never tried", Do: "upgrade to 6.2 or later"})
		return
	}
	if major == 6 && (minor == 2 && patch < 7 || minor == 9) { // 6.9 are the release candidates of 7.0.0
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: "the server is " + name + ", which has CVE-2022-24735",
			Why:   "any user that may run scripts, even one that may only read, can change what the scripts of all others call, and so end or forge every lock",
			Do:    "upgrade to 6.2.7, 7.0.0 or later"})
		return
	}
	f.Fine(code, "%s", name)
}

func (n *node) eviction(f *doctor.Findings) {
	const code = "redis.eviction"
	policy, ok := n.info["maxmemory_policy"]
	limit := n.number("maxmemory")
	if !ok {
		if policy, ok = n.config["maxmemory-policy"]; ok {
			limit, _ = strconv.ParseInt(n.config["maxmemory"], 10, 64)
		}
	}
	switch {
	case !ok:
		n.unclear(f, code, "maxmemory-policy", "what the server does when its memory is full",
			"if it evicts keys, a lock that is held may be evicted, and another client gets it", true)
	case policy != "noeviction" && limit > 0:
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("maxmemory-policy is %s, with a maxmemory of %s", policy, size(limit)),
			Why:   "when the memory is full, keys are evicted, also those of locks that are held, and other clients get them",
			Do:    "CONFIG SET maxmemory-policy noeviction, and the same in the server's configuration; keep locks apart from a cache, on a server of their own"})
	case policy != "noeviction":
		f.Fine(code,
			"nothing is evicted as long as maxmemory is 0; set maxmemory-policy, which is %s, to noeviction before you set a limit", policy)
	case limit > 0 && n.number("used_memory") > limit/10*9:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("nothing is evicted (noeviction), and %s of %s are in use", size(n.number("used_memory")),
				size(limit)),
			Why: "when the memory is full, every request for a new lock is refused; renewals and releases still work",
			Do:  "raise maxmemory, or move other data to another server"})
	default:
		f.Fine(code, "maxmemory-policy is noeviction")
	}
}

func size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	if n < 10<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func (n *node) persistence(f *doctor.Findings) {
	const code = "redis.persistence"
	const do = "CONFIG SET appendonly yes and CONFIG SET appendfsync always, and the same in the server's configuration. Or see to it that a server " +
		"that lost its data stays down for longer than the longest TTL"
	aof, known := n.info["aof_enabled"]
	if !known {
		switch n.config["appendonly"] {
		case "yes":
			aof, known = "1", true
		case "no":
			aof, known = "0", true
		}
	}
	fsync, hasFsync := n.config["appendfsync"]
	switch {
	case !known:
		n.unclear(f, code, "append*", "whether the server keeps its data over a restart",
			"a server that restarts without its data has forgotten all grants, and grants the locks again", true)
	case aof == "0":
		snapshots := ""
		if n.config["save"] != "" {
			snapshots = fmt.Sprintf("; there are snapshots (save %s), which lack what came after them", n.config["save"])
		}
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers, Found: "appendonly is no" + snapshots,
			Why: "a server that restarts has forgotten all grants, and grants the locks again", Do: do})
	case !hasFsync:
		n.unclear(f, code, "appendfsync", "how often the server forces its log to the disk (appendonly is yes)",
			"a grant that is not on the disk when the machine fails is forgotten, and the lock is granted again; the default, everysec, loses a second", true)
	case fsync != "always":
		lost := "the last second"
		if fsync == "no" {
			lost = "what the system had not written yet, often half a minute"
		}
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("appendonly is yes, appendfsync is %s", fsync),
			Why: "a crash of the server alone loses nothing, but a power cut, or a crash of the machine, loses " + lost +
				" of grants, which the server then gives out again", Do: do})
	case n.config["no-appendfsync-on-rewrite"] == "yes":
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: "appendfsync is always, but no-appendfsync-on-rewrite is yes",
			Why:   "while the log is rewritten nothing is forced to the disk: a power cut then loses grants",
			Do:    "CONFIG SET no-appendfsync-on-rewrite no"})
	default:
		f.Fine(code, "appendonly is yes, appendfsync is always")
	}
}

// disk reports failed writes to the disk, for which the server refuses requests.
func (n *node) disk(f *doctor.Findings) {
	for _, field := range []string{"aof_last_write_status", "rdb_last_bgsave_status"} {
		if status := n.info[field]; status != "" && status != "ok" {
			f.Add(driver.Finding{Code: "redis.disk", Severity: driver.Slows, Found: fmt.Sprintf("%s is %s", field, status),
				Why: "a server that cannot write to its disk refuses requests (MISCONF): locks can be neither taken nor renewed",
				Do:  "see the server's log; give it space on the disk, and permission to write there"})
			return
		}
	}
	if n.info != nil {
		f.Fine("redis.disk", "the last writes to the disk succeeded")
	}
}

func (n *node) replicas(f *doctor.Findings) {
	const code, cut = "redis.replicas", "redis.cutoff"
	connected, ok := n.info["connected_slaves"]
	switch {
	case !ok:
		n.unclear(f, code, "", "whether the server has replicas",
			"replication is asynchronous: a replica that is promoted may not know the last grants", true)
		return
	case n.info["role"] == "slave":
		return
	case connected == "0" && n.wait == 0:
		f.Fine(code, "the server has no replicas, so none that lacks the last grants can be promoted")
		return
	}
	switch have := n.number("connected_slaves"); {
	case n.wait > 0 && have < int64(n.wait):
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("%d replicas have to confirm each grant, and the server has %d", n.wait, have),
			Why:   "no lock can be granted or kept",
			Do:    "bring the replicas back; a smaller WaitReplicas (replicas=N) loses leases at a failover"})
		return
	case n.wait > 0 && have == int64(n.wait):
		f.Fine(code, "all replicas (%d) have to confirm each grant, so whichever is promoted knows it", have)
		return
	case n.wait > 0:
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("%d of %d replicas have to confirm each grant", n.wait, have),
			Why:   "a replica that did not confirm a grant may be promoted, and grants the lock again",
			Do:    fmt.Sprintf("replicas=%d in the URL, or WaitReplicas: all that there are", have)})
	default:
		f.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf("the server has replicas: %s", connected),
			Why:   "replication is asynchronous: one that is promoted (by Sentinel, a Cluster, an operator) may not know the last grants, and grants the locks again",
			Do: fmt.Sprintf(
				"replicas=%d in the URL, or WaitReplicas, lets all of them confirm each grant. Or let the resources check fencing tokens, which go on growing. "+
					"If no replica is ever promoted, or none before the longest TTL has passed since the primary stopped, this is no danger", have)})
	}
	if n.info["min_slaves_good_slaves"] == "" { // INFO has it only if the setting is on
		f.Add(driver.Finding{Code: cut, Severity: driver.Endangers, Found: "min-replicas-to-write is 0",
			Why: "a primary that is cut off from its replicas goes on granting locks, while one of them is promoted and grants the same locks",
			Do:  "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 1, which narrows that to a second or two"})
		return
	}
	f.Fine(cut, "a primary with too few reachable replicas stops taking writes (min-replicas-to-write)")
}

// quota reports a primary that has fewer replicas than min-replicas-to-write asks for.
func (n *node) quota(f *doctor.Findings) {
	const code = "redis.min-replicas"
	if n.info["min_slaves_good_slaves"] == "" || n.info["role"] == "slave" { // INFO has it only if the setting is on
		return
	}
	asked, found := int64(1), "more than that"
	if v, err := strconv.ParseInt(n.config["min-replicas-to-write"], 10, 64); err == nil {
		asked, found = v, fmt.Sprint(v)
	}
	good := n.number("min_slaves_good_slaves")
	if good >= asked {
		f.Fine(code, "the server reaches %d replicas, which is enough for min-replicas-to-write", good)
		return
	}
	f.Add(driver.Finding{Code: code, Severity: driver.Slows,
		Found: fmt.Sprintf("the server reaches %d replicas, and min-replicas-to-write asks for %s", good, found),
		Why:   "it refuses requests (NOREPLICAS): locks can be neither taken nor renewed",
		Do:    "start the replicas, or see why they did not report to the server within min-replicas-max-lag seconds"})
}

func (n *node) cluster(f *doctor.Findings) {
	const code = "redis.cluster"
	switch on := n.info["cluster_enabled"]; {
	case on == "1" && !n.many:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: "the server is a node of a Cluster, and is used as if it were alone",
			Why:   "requests for names that other nodes keep are refused, and so are renewals of several names at once: leases are lost, but in time, and holders are told",
			Do:    "use redis+cluster://, or in Go a client of the Cluster"})
	case on != "":
		f.Fine(code, "the client matches the server (cluster_enabled is %s)", on)
	}
}

func (n *node) connections(f *doctor.Findings) {
	limit := n.number("maxclients")
	if limit == 0 {
		limit, _ = strconv.ParseInt(n.config["maxclients"], 10, 64)
	}
	if limit == 0 || n.info == nil {
		n.unclear(f, "redis.connections", "", "how many connections are left",
			"when none is left, clients that start or reconnect are refused", false)
		return
	}
	f.Headroom("redis.connections", "maxclients", n.number("connected_clients"), limit)
}

// outputBuffer checks how much the server buffers for a slow client.
func (n *node) outputBuffer(f *doctor.Findings) {
	const code = "redis.output-buffer"
	all := strings.Fields(n.config["client-output-buffer-limit"])
	for i := 0; i+3 < len(all); i += 4 {
		if all[i] != "pubsub" {
			continue
		}
		hard, _ := strconv.ParseInt(all[i+1], 10, 64)
		soft, _ := strconv.ParseInt(all[i+2], 10, 64)
		if hard > 0 && hard < 1<<20 || soft > 0 && soft < 1<<18 {
			f.Add(driver.Finding{Code: code, Severity: driver.Slows,
				Found: "client-output-buffer-limit is " + strings.Join(all[i:i+4], " "),
				Why:   "the server closes the connection of a client that gets many pushes at once, and drops them: the client learns of its grants when it renews its places",
				Do:    `CONFIG SET client-output-buffer-limit "pubsub 32mb 8mb 60", the default`})
			return
		}
		f.Fine(code, "client-output-buffer-limit is %s", strings.Join(all[i:i+4], " "))
		return
	}
	n.unclear(f, code, "client-output-buffer-limit", "how many pushes the server buffers for a client",
		"if there is little room, waiters learn of their grants late", false)
}

func (n *node) scriptLimit(f *doctor.Findings) {
	const code = "redis.script-limit"
	limit, err := strconv.ParseInt(n.config["lua-time-limit"], 10, 64)
	switch {
	case err != nil:
		n.unclear(f, code, "lua-time-limit", "how long scripts may run before others are refused (BUSY)",
			"those of holdfast take less than a millisecond, except renewals of thousands of locks", false)
	case limit > 0 && limit < 50:
		f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: fmt.Sprintf("lua-time-limit is %d ms", limit),
			Why: "while a script runs for longer, others are refused (BUSY); a busy machine makes even short ones long",
			Do:  "CONFIG SET lua-time-limit 5000, the default"})
	default:
		f.Fine(code, "lua-time-limit is %d ms", limit)
	}
}
