package cli

import (
	"slices"
	"strings"
)

// codes are the codes of all findings; docs/doctor.md explains them.
var codes = strings.Fields(`
	lock.try
	memory.scope
	mysql.clock mysql.connections mysql.doublewrite mysql.durability mysql.engine mysql.history mysql.latency
	mysql.one-server mysql.pool mysql.read-only mysql.records mysql.replicas mysql.schema
	mysql.timeouts mysql.version mysql.wakeups
	postgres.autovacuum postgres.clock postgres.connections postgres.creators postgres.durability
	postgres.full-page-writes postgres.history postgres.latency postgres.old-rows postgres.one-server postgres.pool postgres.read-only
	postgres.records postgres.replicas postgres.schema postgres.secret postgres.tables postgres.timeouts
	postgres.version postgres.wakeups
	quorum.clocks quorum.majority quorum.quarantine quorum.reach quorum.servers quorum.size
	redis.clock redis.cluster redis.connections redis.cutoff redis.disk redis.eviction redis.flushes
	redis.latency redis.min-replicas redis.output-buffer redis.persistence redis.reach redis.records redis.replicas
	redis.role redis.script-limit redis.scripts redis.sentinels redis.settings redis.slots redis.users
	redis.version redis.wakeups
	sqlite.boot sqlite.clock sqlite.file-system sqlite.integrity sqlite.journal sqlite.latency
	sqlite.leftovers sqlite.permissions sqlite.space
	zookeeper.acl zookeeper.connections zookeeper.ensemble zookeeper.fsync zookeeper.latency
	zookeeper.one-ensemble zookeeper.permissions zookeeper.reach zookeeper.servers zookeeper.session zookeeper.ticks
	zookeeper.version
`)

// checkCode refuses a code that no finding has.
func checkCode(code string) error {
	if slices.Contains(codes, code) {
		return nil
	}
	store, _, _ := strings.Cut(code, ".")
	var others []string
	for _, c := range codes {
		if strings.HasPrefix(c, store+".") {
			others = append(others, c)
		}
	}
	if len(others) == 0 {
		return usagef("--accept %s: expected the code of a finding, such as redis.replicas%s", show(code), meant(code, codes))
	}
	return usagef("--accept %s: no finding has this code%s; allowed are %s", show(code), meant(code, others),
		strings.Join(others, ", "))
}
