package mutant

// storeRegressions are faults of blocks of tokens, of shared exchanges, and of records that cannot be read.
var storeRegressions = []Regression{
	{Mutant{ID: "redis-blocks-unbounded", Bug: "the tokens of blocks run ahead of the server's clock for as long as clients take them",
		Edits: []Edit{{"redislock/scripts.go", `"AHEAD", ahead.Microseconds()`, `"AHEAD", 1e6 * ahead.Microseconds()`}}},
		"tests/redislock", "TestBlocksInTurn"},
	{Mutant{ID: "redis-hands-over-unbounded", Bug: "the block of a waiter runs ahead of the server's clock",
		Edits: []Edit{{"redislock/lua/release_fast.lua", "either(math.max(token, last + n), math.max(token, last + 1), now)",
			"math.max(token, last + n)"}}}, "tests/redislock", "TestBlocksOfAClock"},
	{Mutant{ID: "client-sticky-after-extend", Bug: "a call takes what is left of a lease to which Extend gave an end",
		Edits: []Edit{{"cohort.go", " || l.latest != forever", ""}}}, ".", "TestStickyAfterExtend"},
	{Mutant{ID: "client-sticky-hand-over", Bug: "a grant that was handed over, with others behind it, stays with its client",
		Edits: []Edit{{"sticky.go", "l.kept != freeGrant || ", ""}}}, ".", "TestCalledBack"},
	{Mutant{ID: "redis-calls-nobody-back", Bug: "a waiter that joins the queue by the fast path does not call the grant back",
		Edits: []Edit{{"redislock/lua/acquire_fast.lua", "    and string.byte(v, 87 + sub(v, 83, 84)) ~= 33 -- !: it calls its session back\n",
			""}}}, "tests/redislock", "TestConformance/R22"},
	{Mutant{ID: "client-loses-a-place", Bug: "a call that gives up takes the place of its client along",
		Edits: []Edit{
			{"await.go", "!(err == nil && a.bequeath(sent, reply))", "!(err == nil && sent < 0)"},
		}}, ".", "TestPlaceIsBequeathed"},
	{Mutant{ID: "client-refused-release", Bug: "a release that the store refused temporarily is not repeated",
		Edits: []Edit{
			{"background.go", `final(err) && !errors.Is(err, ErrRefused)`, `final(err)`},
		}}, "memlock", "TestConformance/R13"},
	{Mutant{ID: "redis-refusal-ends-a-place", Bug: "a session forgets a place when the same request is refused",
		Edits: []Edit{
			{"redislock/wake.go", `case a.wake != nil: // it has`, `case false: // it has`},
		}}, "tests/redislock", "TestRefusedWithAPlace"},
	{Mutant{ID: "redis-name-taken-twice", Bug: "two calls that share an exchange both get the same free name",
		Edits: []Edit{
			{"redislock/lua/take.lua", `not (seen and seen[l]) and`, `true and`},
		}}, "tests/redislock", "TestCombinedSameName"},
	{Mutant{ID: "redis-refused-halfway", Bug: "a refusal in the middle of a shared exchange hides what it has granted",
		Edits: []Edit{
			{"redislock/lua/take.lua", `local r = redis.pcall('SET', l`, `local r = redis.call('SET', l`},
		}}, "tests/redislock", "TestCombinedRefused"},
	{Mutant{ID: "quorum-refused-halfway", Bug: "a refusal in the middle of a member's shared exchange hides what it has granted",
		Edits: []Edit{
			{"redislock/lua/member_take.lua", `local r = redis.pcall('SET', l`, `local r = redis.call('SET', l`},
		}}, "tests/quorum", "TestCombinedRefused"},
	{Mutant{ID: "redis-silent-exchange", Bug: "one shared exchange without an answer holds up calls that are not part of it",
		Edits: []Edit{
			{"redislock/combine.go", `case m.old > 0: // all`, `case false: // all`},
		}}, "tests/redislock", "TestCombinedSilent"},
	{Mutant{ID: "redis-waits-for-leavers", Bug: "a call waits longer for others when calls before it in the queue give up",
		Edits: []Edit{
			{"redislock/combine.go", "\t\t\tif i < m.old {\n\t\t\t\tm.old--\n", "\t\t\tif i < m.old {\n\t\t\t\tm.old = 0\n"},
		}}, "redislock", "TestWaitsForOthers"},
	{Mutant{ID: "redis-panic", Bug: "a panic of the Redis client counts as an exchange under way for ever",
		Edits: []Edit{
			{"redislock/combine.go", `defer m.ended() //`, "defer func() {\n\t\t\tif p := recover(); p != nil {\n\t\t\t\tpanic(p)\n\t\t\t}\n" +
				"\t\t\tm.ended()\n\t\t}() //"},
		}}, "tests/redislock", "TestCombinedPanic"},
	{Mutant{ID: "redis-shared-time-limit", Bug: "a time limit of a shared exchange looks like the end of its callers' contexts",
		Edits: []Edit{
			{"redislock/combine.go", `return v, m.conn.answered(none, err)`, `return v, err`},
		}}, "tests/redislock", "TestCombinedTimeLimit"},
	{Mutant{ID: "redis-closed-under-way", Bug: "after Close, callers of requests that were done hear that nothing was",
		Edits: []Edit{
			{"redislock/rueidisconn/rueidisconn.go", `case errors.Is(err, rueidis.ErrNoAddr)`,
				`case errors.Is(err, rueidis.ErrClosing), errors.Is(err, rueidis.ErrNoAddr)`},
		}}, "tests/redislock", "TestClosedUnderWay"},
	{Mutant{ID: "redis-wait-unblocked", Bug: "a late grant stays if the wait for replicas ends with an error",
		Edits: []Edit{
			{"redislock/exchange.go", `errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrUncertain)`,
				`errors.Is(err, driver.ErrUnavailable)`},
		}}, "tests/redislock", "TestLateGrantUnblocked"},
	{Mutant{ID: "redis-taken-back-once", Bug: "a grant that could not be taken back stays after Close",
		Edits: []Edit{
			{"redislock/replicas.go", `err := s.ensureCancelled(ctx, name, id); err != nil {`,
				`err := s.Cancel(ctx, name, id); err != nil {`},
		}}, "tests/redislock", "TestTakenBackLate"},
	{Mutant{ID: "redis-adopts-unconfirmed", Bug: "an adoption that no replica has confirmed is left to nobody",
		Edits: []Edit{
			{"background.go", `errors.Is(err, ErrUncertain) || err != nil`, `err != nil`},
		}}, "tests/redislock", "TestAdoptUnconfirmed"},
	{Mutant{ID: "redis-one-bad-record", Bug: "a key of another type fails the renewal of all leases of its client",
		Edits: []Edit{
			{"redislock/lua/renew.lua", `redis.pcall('GET', KEYS[i])`, `call('GET', KEYS[i])`},
			{"redislock/renew.go", `		if damaged := errors.Is(r.Err, driver.ErrDamaged); (unstable`,
				`		if damaged := false; (unstable`},
		}}, "tests/redislock", "TestDamaged"},
	{Mutant{ID: "table-one-bad-record", Bug: "a row that cannot be read fails the renewal of all leases of its client",
		Edits: []Edit{
			{"sqllock/server_renew.go", `	if errors.Is(err, driver.ErrDamaged) { // it does`,
				`	if errors.Is(err, driver.ErrDamaged) && err == nil { // it does`},
		}}, "sqllock/mysql", "TestDamage"},
	{Mutant{ID: "zookeeper-refused-by-nobody", Bug: "a refusal names no holder if the one in the way has just gone",
		Edits: []Edit{
			{"zklock/acquire.go", `if reply.Holder != nil {`, `if true {`},
		}}, "zklock", "TestRefusalNamesAHolder"},
	{Mutant{ID: "sqlite-leaves-a-transaction",
		Bug: "a grant becomes part of a transaction that could not be ended, and is not on record",
		Edits: []Edit{
			{"sqllock/sqlite/conn.go", `			if c.open {`, `			if false {`},
		}}, "sqllock/sqlite", "TestLeftoverTransaction"},
	{Mutant{ID: "sqlite-one-bad-record", Bug: "one damaged record fails the renewal of all leases of its client",
		Edits: []Edit{
			{"sqllock/sqlite/session.go", `	_, err = skipDamaged(func(damaged map[string]bool) (at string, err error) {
		changes, at, err = s.renewBut(ctx, holds, damaged)
		return at, err
	})
	return changes, err`, `	changes, _, err = s.renewBut(ctx, holds, nil)
	return changes, err`},
		}}, "sqllock/sqlite", "TestSQLiteConformance/R15"},
}
