package mutant

import (
	"slices"
	"strings"
)

// Regression is a fault that holdfast had, put back: a test must fail with it.
type Regression struct {
	Mutant // without a class, a store and a run

	Package string // from the root of the repository
	Test    string // a pattern for -run
}

// tests returns the tests that must fail, for people.
func (m *Regression) tests() string {
	names := "`" + strings.ReplaceAll(m.Test, "|", "`, `") + "`"
	if m.Package == "." {
		return names
	}
	return names + " of `" + m.Package + "`"
}

// AllRegressions are faults that attacks on the protocols found. `holdfast verify` has no fault
// that shows them, or shows them only by luck.
var AllRegressions = slices.Concat(regressions, quorumRegressions)

var regressions = []Regression{
	{Mutant{ID: "redis-told-first", Bug: "a release notifies the first waiter before its write, which Redis may refuse",
		Edits: []Edit{
			{"redislock/lua/release_fast.lua", "      call('HDEL', KEYS[3], 'w' .. id)\n",
				"      call(publish, channel, id .. ' ' .. token .. stamp(now))\n      call('HDEL', KEYS[3], 'w' .. id)\n"},
		}}, "tests/redislock", "TestRefusingWrites"},
	{Mutant{ID: "redis-cluster-told-first", Bug: "the same in a Cluster", Edits: []Edit{
		{"redislock/lua/release_fast.lua", "      call('HDEL', KEYS[3], 'w' .. id)\n",
			"      call(publish, channel, id .. ' ' .. token .. stamp(now))\n      call('HDEL', KEYS[3], 'w' .. id)\n"},
	}}, "tests/redislock", "TestAborted/cluster"},
	{
		Mutant{ID: "redis-told-in-the-middle",
			Bug: "a script publishes before it has written the grants, and may fail in between", Edits: []Edit{
				{"redislock/lua/common.lua", `outbox[#outbox + 1] = {how, to, message}`, `call(how, to, message)`},
			}}, "tests/redislock", "TestAborted"},
	{
		Mutant{ID: "redis-passed-over-is-told",
			Bug: "a waiter without a subscription at the primary is passed over, but its token is published", Edits: []Edit{
				{"redislock/lua/common.lua", `    mint(block(mode, n)) -- each turn has its tokens`,
					`    notify(session, id, mint(block(mode, n)))`},
			}}, "tests/redislock", "TestPassedOverGetsNothing"},
	{
		Mutant{ID: "redis-patterns-listen",
			Bug: "a monitoring tool with a pattern subscription makes every dead waiter look alive", Edits: []Edit{
				{"redislock/lua/common.lua", `return not count_ or call('PUBSUB', count_, to)[2] > 0`,
					`return not count_ or call('PUBSUB', count_, to)[2] + call('PUBSUB', 'NUMPAT') > 0`},
				{"redislock/lua/release_fast.lua", `call('PUBSUB', numsub, channel)[2] > 0 then`,
					`call('PUBSUB', numsub, channel)[2] + call('PUBSUB', 'NUMPAT') > 0 then`},
			}}, "tests/redislock", "TestPatternListener"},
	{Mutant{ID: "redis-permits-lost-halfway",
		Bug: "permits that are given back are lost if the script fails between its writes", Edits: []Edit{
			{"redislock/lua/change.lua", "  unsettle()\n  putHold(id, t, e, k, s, left, owner)",
				"  putHold(id, t, e, k, s, left, owner)"},
		}}, "tests/redislock", "TestAborted"},
	{Mutant{ID: "redis-limit-removed-in-use",
		Bug: "the record of a semaphore in use expires a moment after its limit was removed", Edits: []Edit{
			{"redislock/lua/common.lua", `if left == -1 and (count > 0 or line) then`, `if false then`},
		}}, "tests/redislock", "TestKeyOfALimit"},
	{Mutant{ID: "sqlite-two-paths", Bug: "one file can be opened under two names, each with a log of its own",
		Edits: []Edit{
			{"sqllock/sqlite/file.go", "	if links > 1 {\n		return", "	if links > 1<<20 {\n		return"},
			{"sqllock/sqlite/file.go", `		if err != nil || what == "" {`, `		if err != nil || what != "never" {`},
		}}, "sqllock/sqlite", "TestSQLiteOtherPaths"},
	{
		Mutant{ID: "run-takes-its-time",
			Bug: "a command that ends slowly may go on after the store has given the lock to another", Edits: []Edit{
				{"cmd/holdfast/cli/task.go", `		return min(ttl/8, 10*time.Second)`, `		return 10 * time.Second`},
				{"cmd/holdfast/cli/task.go", `Left: h.left, Limit: limit`,
					`Left: func() time.Duration { return time.Hour }, Limit: limit`},
			}}, "cmd/holdfast", "TestTimedSilentStore/run"},
	{Mutant{ID: "run-guard-keeps-nothing", Bug: "the embedded store grants the lock of a killed holdfast before the guard has ended its command",
		Edits: []Edit{
			{"cmd/holdfast/child/guard/guard.go", `files = append(files, f.Fd())`, `_ = f`},
		}}, "cmd/holdfast/child/guard", "TestGuardKeepsFiles"},
	{Mutant{ID: "run-first-thread-ended", Bug: "a process counts as ended when only its first thread has ended",
		Edits: []Edit{
			{"cmd/holdfast/child/guard/group_linux.go", ` && threads <= 1`, ` && threads >= 0`},
		}}, "cmd/holdfast/child/guard", "TestAliveWithoutItsFirstThread"},
	{Mutant{ID: "run-continues-a-stop",
		Bug: "a command that stops itself right after its start is continued",
		Edits: []Edit{
			{"cmd/holdfast/child/run_unix.go", `ws.Stopped() && l.done()`, `false`},
		}}, "cmd/holdfast/child", "TestStopsItselfAtOnce"},
	{Mutant{ID: "run-stop-undone", Bug: "a command that was stopped for long is continued twice, which undoes a stop in between",
		Edits: []Edit{
			{"cmd/holdfast/child/suspend_unix.go", `case !inTime || !j.timely:`, `case !inTime && false:`},
		}}, "cmd/holdfast/child", "TestStoppedForLong"},
	{Mutant{ID: "run-stop-forgotten", Bug: "a stop between the grant and the start of the command is forgotten",
		Edits: []Edit{
			{"cmd/holdfast/child/stops_unix.go", `		default:
			s.asked = true
`, `		default:
			s.asked = false
`},
		}}, "cmd/holdfast/child", "TestStopIsPutOff"},
	{Mutant{ID: "run-stop-after-the-grant", Bug: "a stop in the queue takes effect after the grant for which it has waited",
		Edits: []Edit{
			{"cmd/holdfast/child/stops_unix.go", `case s.forgot != forgot, (s.held > 0 || !paused) && s.tries < stopTries:`,
				`case s.forgot != forgot, !paused && s.tries < stopTries:`},
		}}, "cmd/holdfast/child", "TestStopDuringTheRequest"},
	{Mutant{ID: "run-stop-after-it-goes-on", Bug: "holdfast stops although its command has been continued meanwhile",
		Edits: []Edit{
			{"cmd/holdfast/child/suspend_unix.go", `	case j.news():`, `	case false:`},
		}}, "cmd/holdfast/child", "TestContinuedBeforeItsStopIsSeen"},
	{Mutant{ID: "redis-astray-late", Bug: "a late answer about an earlier subscription ends the one in its place",
		Edits: []Edit{
			{"redislock/goredisconn/subscribe.go", `if s.stopped || s.asked != s.changes || !s.stands && time.Since(s.opened) < 2*silence {`, `if s.stopped {`},
		}}, "redislock/goredisconn", "TestSharedAstrayLate"},
	{Mutant{ID: "client-ticket-is-for-writing", Bug: "an adopted lease is exclusive, whatever the store's record says",
		Edits: []Edit{
			{"handoff.go", `l.req.Mode, l.req.N, l.req.Limit, l.req.Tokens = h.Mode, max(h.N, 1), rec.Limit, a.block`,
				`l.req.N, l.req.Limit, l.req.Tokens = max(h.N, 1), rec.Limit, a.block`},
		}}, ".", "TestHandOffOfADowngradedGrant"},
	{Mutant{ID: "client-grant-of-a-dead-session", Bug: "a grant of an ended session becomes a lease", Edits: []Edit{
		{"keepalive.go", `	if c.closed || l.session.over() {`, `	if c.closed {`},
		{"await.go", `		if err == nil && a.l.session.over() {`, `		if false {`},
		{"lease.go", `		case x.outer == nil && x.session.over():`, `		case false:`},
	}}, ".", "TestGrantOfASessionThatIsOver"},
	{Mutant{ID: "client-log-in-line", Bug: "the goroutines that renew and end leases call the log and the observer",
		Edits: []Edit{
			{"callbacks.go", "func (q *callQueue) addUpTo(most int, f func()) {\n",
				"func (q *callQueue) addUpTo(most int, f func()) {\n	if f != nil {\n		q.call(f)\n		return\n	}\n"},
		}}, ".", "TestLeasesEndWithABlockedLog|TestRenewalWithABlockedLog"},
	{Mutant{ID: "quorum-votes-without-memory", Bug: "a server of a quorum votes without a check of the origin of its data",
		Edits: []Edit{
			{"redislock/lua/member.lua", ` or not string.find(links, 'role:master', 1, true)
  or not string.find(links, 'master_replid:' .. string.sub(mark, 82, 121) .. '\r', 1, true) then`, ` then`},
		}}, "tests/quorum", "TestForgottenVote"},
	{Mutant{ID: "quorum-run-is-enough", Bug: "a server that was a replica for a moment keeps its vote", Edits: []Edit{
		{"redislock/lua/member_birth.lua", ` and (sub(old, 82, 121) == id or not match(second, '[^0]'))`, ``},
	}}, "tests/quorum", "TestForgottenVote"},
	{
		Mutant{ID: "postgres-told-before-commit",
			Bug: "the next holder is notified inside the transaction that hands it the lock", Edits: []Edit{
				{"sqllock/server_session.go", `Window: micros(s.ttl / 3),
		})
		return err
	})
	switch {
	case errors.Is(err, errOutOfRange)`, `Window: micros(s.ttl / 3),
		})
		if err == nil && got.To != nil && got.To.Server == b.id {
			b.received(*got.To)
		}
		return err
	})
	switch {
	case errors.Is(err, errOutOfRange)`},
			}}, "sqllock/postgres", "TestServer/tells_only_what_is_written"},
	{Mutant{ID: "client-cancels-once", Bug: "a cancel is not repeated although its request may still be under way",
		Edits: []Edit{
			{"background.go", `	if unanswered {`, `	if unanswered && c == nil {`},
		}}, "memlock", "TestConformance/R8"},
	{Mutant{ID: "client-late-after-the-end", Bug: "a request that may still be under way is not cancelled after a loss or a hand-off",
		Edits: []Edit{
			{"background.go", `	if l.unanswered {`, `	if l.unanswered && l.c == nil {`},
		}}, ".", "TestReleaseOfALossBeforeALateExchange"},
	{Mutant{ID: "client-lockall-keeps-all", Bug: "calls of LockAll that are out of order cost each other their whole patience",
		Edits: []Edit{
			{"lockall.go", `outOfOrder && !hurried`, `false`},
		}}, ".", "TestLockAllOfSomeNames"},
	{Mutant{ID: "quorum-cancel-ends-minimum", Bug: "a late cancellation ends a minimum hold at a server that missed the release",
		Edits: []Edit{
			{"redislock/quorum/release.go", `if spare != nil && spare[i] {`, `if false && spare[i] {`},
		}}, "redislock/quorum", "TestCancelAfterReleaseKeepsMinimum"},
	{Mutant{ID: "quorum-minimum-of-each-vote", Bug: "a server that voted early counts the minimum hold from its vote",
		Edits: []Edit{
			{"redislock/quorum/keep.go", `m.Pass(ctx, own, max(keep, k.left(s.clock.now())), k.propose)`, `m.Pass(ctx, own, keep, k.propose)`},
		}}, "redislock/quorum", "TestMinimumOfAnEarlyVote"},
	{Mutant{ID: "quorum-minimum-too-early", Bug: "a request that is refused has asked for its minimum hold",
		Edits: []Edit{
			{"redislock/quorum/minimum.go", `case r.from == 0 && !r.driver.Wait:`, `case r.driver.MinHold == 0:`},
			{"redislock/quorum/ask.go", `if r.driver.Wait { // others`, `if true { // others`},
		}}, "redislock/quorum", "TestMinimumOfAMajority"},
	{Mutant{ID: "quorum-minimum-in-a-question", Bug: "a question that comes after the release keeps the name for its minimum hold",
		Edits: []Edit{
			{"redislock/quorum/ask.go", `if r.driver.Wait { // others`, `if true { // others`},
		}}, "redislock/quorum", "TestMinimumAfterCompletion"},
	{Mutant{ID: "quorum-minimum-of-another-grant",
		Bug: "a late message about a minimum hold keeps the name for a later grant of the request",
		Edits: []Edit{
			{"redislock/lua/member_keep.lua", `if not mine or has > upto then`, `if not mine then`},
		}}, "tests/quorum", "TestMinimumOfAnEarlierGrant"},
	{Mutant{ID: "client-own-grant-is-a-run", Bug: "OnlyOne takes its own grant, whose answer was lost, for a run of another",
		Edits: []Edit{
			{"background.go", `	c.requests.abandon(id)
`, ``},
		}}, ".", "TestOnlyOneBesideALostAnswer"},
	{Mutant{ID: "client-only-one-takes-servers", Bug: "while too few servers are free, OnlyOne takes them from others again and again",
		Edits: []Edit{
			{"onlyone.go", `if again && rest > 0 && c.tooFewFree(ctx, name, rest) {`,
				`if again && rest < 0 && c.tooFewFree(ctx, name, rest) {`},
		}}, ".", "TestOnlyOnePastALeftover"},
	{Mutant{ID: "quorum-missed-release", Bug: "a release within the minimum hold is not repeated at a server that missed it",
		Edits: []Edit{
			{"redislock/quorum/release.go", `s.passAgain(&own, p, h)`, `_ = own`},
		}}, "redislock/quorum", "TestReleaseMissedWithinTheMinimum"},
	{Mutant{ID: "quorum-adopted-minimum", Bug: "a grant that is adopted has no minimum hold",
		Edits: []Edit{
			{"redislock/quorum/adopt.go", `r.keepsAtLeast(minimum, `, `r.keepsAtLeast(min(minimum, 0), `},
		}}, "tests/quorum", "TestAdoptedMinimum"},
	{Mutant{ID: "quorum-kept-at-a-busy-server", Bug: "a released name is not kept at a server that another request has at that moment",
		Edits: []Edit{
			{"redislock/quorum/keep.go", `		if !k.sure { // then`, `		if true { // then`},
		}}, "redislock/quorum", "TestKeptAtABusyServer"},
	{Mutant{ID: "quorum-minimum-of-a-dead-waiter", Bug: "a waiter that died keeps a server for its whole minimum hold",
		Edits: []Edit{
			{"redislock/lua/member_claim.lua", `local majority, above = ARGV[2] == '0'`, `local majority, above = false`},
		}}, "tests/quorum", "TestMinimumOfADeadWaiter"},
	{Mutant{ID: "quorum-claim-ends-newer", Bug: "a late claim ends the minimum hold of a later grant",
		Edits: []Edit{
			{"redislock/lua/member_claim.lua", `token <= above`, `true`},
		}}, "tests/quorum", "TestClaimOfAnOlderGrant"},
	{Mutant{ID: "quorum-claim-of-now", Bug: "a claim after a break ends the minimum hold of a later grant",
		Edits: []Edit{
			{"redislock/quorum/agreement.go", `s.surpassed(r)`, `max(r.token, s.clock.propose())`},
		}}, "redislock/quorum", "TestClaimAfterABreak"},
	{Mutant{ID: "quorum-kept-under-an-early-token", Bug: "a server keeps a name under the token that it gave before a majority agreed",
		Edits: []Edit{
			{"redislock/quorum/keep.go", `if own.Token < k.token && `, `if false && `},
		}}, "redislock/quorum", "TestKeptUnderTheAgreedToken"},
	{Mutant{ID: "quorum-judged-after-sleep", Bug: "after a sleep, a server that is silent is taken for one whose clock was set",
		Edits: []Edit{
			{"redislock/quorum/clocks.go", `if silent(v) {`, `if false && silent(v) {`},
		}}, "redislock/quorum", "TestJudgedAfterSleep"},
	{Mutant{ID: "quorum-outage-decides", Bug: "servers that disagree after an outage are both ruled to be wrong, before a third one can answer",
		Edits: []Edit{
			{"redislock/quorum/clocks.go", `min(now-c.judging, askLimit/2)`, `now - c.judging`},
		}}, "redislock/quorum", "TestJudgedAfterAnOutage"},
	{Mutant{ID: "quorum-reader-ends-minimum", Bug: "a reader ends a minimum hold at a server that missed the downgrade",
		Edits: []Edit{
			{"redislock/lua/member_claim.lua", `if mode == 's' then
    used`, `if false then
    used`},
		}}, "tests/quorum", "TestReaderBesideAMissedDowngrade"},
	{Mutant{ID: "client-close-beside-locks", Bug: "Close does not wait for requests that the store answers at once",
		Edits: []Edit{
			{"acquire.go", `	if !c.work.tryAdd() {
		return nil, &Error{Op: op, Name: req.Name, Err: ErrClosed}
	}
	defer c.work.done()
	l := &Lease`, `	if !c.isOpen() {
		return nil, &Error{Op: op, Name: req.Name, Err: ErrClosed}
	}
	l := &Lease`},
		}}, ".", "TestCloseDuringLocks"},
	{Mutant{ID: "client-passes-one-token", Bug: "all passes of a grant have one token",
		Edits: []Edit{{"cohort.go", "	k.next++\n", ""}}}, ".", "TestPassesExclude"},
	{Mutant{ID: "client-passes-after-sleep", Bug: "a lock is passed on after the machine has slept",
		Edits: []Edit{{"cohort.go", "c.boot()-k.boot < k.passFor", "c != nil"}}}, ".", "TestSuspendEndsPasses"},
	{Mutant{ID: "client-passes-a-ticket", Bug: "a lease whose ticket somebody may resume is passed on",
		Edits: []Edit{{"cohort.go", "l.ticketed || ", ""}}}, ".", "TestPassedLease"},
	{Mutant{ID: "client-readers-overtake", Bug: "a reader that comes after a writer of its client is let in before it",
		Edits: []Edit{{"cohort.go", "		c.partReaders(l.req.Name)\n", ""}}},
		".", "TestReadersAfterAWriter"},
	{Mutant{ID: "client-readers-release-early", Bug: "the first reader that leaves gives back the grant of all",
		Edits: []Edit{{"cohort_shared.go", "g.readers--; g.readers > 0 {", "g.readers--; false {"}}},
		".", "TestReadersShare"},
	{Mutant{ID: "client-readers-lost-early", Bug: "a lost grant goes back while some of its readers have not finished",
		Edits: []Edit{{"cohort_shared.go", "g.readers--; g.readers > 0 {",
			"g.readers--; g.readers > 0 && g.ended == nil {"}}},
		".", "TestSharedGrantIsLost"},
	{Mutant{ID: "client-readers-release-after-sleep", Bug: "a reader's release succeeds after its lease has ended in a sleep",
		Edits: []Edit{{"lease.go", "	l.noticeExpiry()\n", ""}}}, ".", "TestReaderReleasedAfterASleep"},
	{Mutant{ID: "client-first-after-sleep", Bug: "the first lease after a sleep of the machine counts from before the sleep",
		Edits: []Edit{{"sticky.go", "> c.coarseNow()+4*c.awakeFor", "< 0"}}}, ".", "TestFirstLeaseAfterASleep"},
	{Mutant{ID: "client-sticky-after-sleep", Bug: "an idle grant is taken after the trust in it has ended",
		Edits: []Edit{{"sticky.go", " || c.trueNow(now) >= idle.trusted", ""}}}, ".", "TestIdleGrantEnds"},
	{Mutant{ID: "client-sticky-releases-after-sleep", Bug: "the release of a lease that ended in a sleep of the machine succeeds",
		Edits: []Edit{{"cohort.go", "now = max(now, l.c.trueNow(time.Now()))", ""}}}, ".", "TestStickyReleaseAfterASleep"},
	{Mutant{ID: "client-sticky-asks-early", Bug: "a client asks beside the release of its idle grant, and is refused by itself",
		Edits: []Edit{{"sticky_end.go", "		c.leave(k)\n", "		c.endIdle(k).releaseInBackground()\n"}}}, ".",
		"TestTryLockBesideAGiveBack"},
	{Mutant{ID: "client-sticky-for-long", Bug: "after a give-back an idle grant stays for as long as that might have taken",
		Edits: []Edit{{"sticky_end.go", "k.armed && k.looksAt <= k.idleTill {", "k.armed {"}}},
		".", "TestIdleAgainAfterAGiveBack"},
	{Mutant{ID: "client-sticky-for-ever", Bug: "an idle grant that was called back stays with its client",
		Edits: []Edit{{"sticky.go", "	if k.isIdle() {\n		c.leave(k)\n	}\n", ""}}}, ".", "TestCalledBack"},
	{Mutant{ID: "client-one-for-a-block", Bug: "a client takes one token of a store that bounds blocks for a whole block",
		Edits: []Edit{{"driver/driver.go", "k.Bounded && token%2 == 1", "k.Bounded && token == 0"}}}, ".",
		"TestStickyOfABoundedStore"},
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
