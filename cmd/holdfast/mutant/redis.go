package mutant

import (
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// redis are bugs of the store on one Redis server.
var redis = []Mutant{
	{
		ID: "redis-release-any-owner", Store: Redis, Class: in(history.S1),
		Bug: "a release of an expired lease ends its successor's: the owner is not compared",
		Edits: []Edit{{"redislock/lua/common.lua", `if same(last, token) and field(tail, 1) == id then return true end`,
			`if last >= token then return true end`}},
		Run: Run{For: 14 * time.Second},
	},
	{
		ID: "redis-renew-nothing", Store: Redis, Class: in(history.S1, history.S5),
		Bug: "a renewal answers with success and writes nothing",
		Edits: []Edit{{"redislock/lua/renew.lua", `if redis.pcall('SET', KEYS[i], state, 'PX', ms).err then`,
			`if false then`}},
		Run: Run{For: 14 * time.Second},
	},
	{
		ID: "redis-token-inherited", Store: Redis, Class: in(history.S4),
		Bug: "a hand-over gives the next holder the token of the previous one",
		Edits: []Edit{
			{"redislock/lua/release_fast.lua", `local token, last = agreed(now, now), sub(a, 1, 16)`,
				`local token, last = sub(a, 1, 16), sub(a, 1, 16)`},
			{"redislock/lua/release_fast.lua", `if n and n > 1 then`, `if false then`},
			{"redislock/lua/release_fast.lua", `elseif token <= last then`, `elseif false then`},
			{"redislock/lua/release_fast.lua", `and token > last and`, `and`},
		},
	},
	{
		ID: "redis-token-of-the-day", Store: Redis, Class: in(history.S4),
		Bug: "tokens are the time in whole seconds",
		Edits: []Edit{
			{"redislock/lua/common.lua", `local token = num(agreed(new and now + n - 1 or max(now, last + n), now))`,
				`local token = math.floor(now / 1000000) * 1000000`},
		},
	},
	{
		ID: "redis-lease-in-seconds", Store: Redis, Class: in(history.L1),
		Bug: "the TTL is passed in the wrong unit: leases last sixty times as long",
		Edits: []Edit{
			{"redislock/session.go", `	lease := driver.LeaseWithin(req.Lease, s.ttl)`,
				`	lease := 60 * driver.LeaseWithin(req.Lease, s.ttl)`},
			{"redislock/session.go", `	c.micros(driver.LeaseWithin(req.Lease, s.ttl)).micros(req.MinHold)`,
				`	c.micros(60 * s.ttl).micros(req.MinHold)`},
			{"redislock/renew.go", "newCall().micros(s.ttl).end()", "newCall().micros(60 * s.ttl).end()"},
		},
		Run: Run{Faults: "kill"},
	},
	{
		ID: "redis-place-not-renewed", Store: Redis, Class: in(history.L3, history.S1),
		Bug: "a renewal does not renew the place in the queue, which expires while its waiter waits",
		Edits: []Edit{{"redislock/lua/refresh.lua", `      putPlace(id, extended(d), s, h, m, n, o)
      dirty = true
`, ``}},
	},
	{
		ID: "redis-lifo", Store: Redis, Class: in(history.L3),
		Bug: "the last waiter is served first",
		Edits: []Edit{
			{"redislock/lua/common.lua", `call('ZRANGEBYSCORE', KZ, 1, LINE, 'LIMIT', 0, 1)[1]`,
				`call('ZREVRANGEBYSCORE', KZ, LINE, 1, 'LIMIT', 0, 1)[1]`},
			{"redislock/lua/release_fast.lua", `local first = redis.pcall('ZRANGE', KEYS[2], 0, 0)[1]`,
				`local first = redis.pcall('ZREVRANGEBYSCORE', KEYS[2], LINE, 1, 'LIMIT', 0, 1)[1]`},
		},
	},
	{
		ID: "redis-barging", Store: Redis, Class: in(history.L3),
		Bug: "a reader joins other readers although a writer waits before it",
		Edits: []Edit{{"redislock/lua/acquire.lua", `if not line and fits(mode, n) then`,
			`if (not line or mode == 's') and fits(mode, n) then`}},
	},
	{
		ID: "redis-reader-beside-writer", Store: Redis, Class: in(history.S5),
		Bug: "readers get the lock while a writer holds it",
		Edits: []Edit{
			{"redislock/lua/common.lua", `if st == 'X' then return false end`, `if st == 'X' then return mode == 's' end`},
		},
	},
	{
		ID: "redis-permits-uncounted", Store: Redis, Class: in(history.S5),
		Bug: "any number of permits is granted as long as one is free",
		Edits: []Edit{{"redislock/lua/common.lua", `if mode == 'p' then return used + n <= limit and admits(mode, n) end`,
			`if mode == 'p' then return used < limit end`}},
	},
	{
		ID: "redis-permits-released-twice", Store: Redis, Class: in(history.S5),
		Bug: "a release returns its permits twice",
		Edits: []Edit{{"redislock/lua/common.lua", `used, count, dirty = used - n, count - 1, true`,
			`used, count, dirty = math.max(used - 2 * n, 0), count - 1, true`}},
	},
	{
		ID: "redis-hand-over-unsaid", Store: Redis, Class: in(history.L2),
		Bug: "a hand-over is neither published nor reported by the renewal",
		Edits: []Edit{
			{"redislock/wake.go", `	case a.waits:
		s.handOver(id, &a, token)`, `	case a.waits && token == 0:
		s.handOver(id, &a, token)`},
			{"redislock/lua/refresh.lua", `if held ~= token then report(i, 2, held, 0, 0) end`, ``},
		},
		Run: Run{TTL: 2 * time.Second, For: 12 * time.Second, Slack: 500 * time.Millisecond},
	},
}
