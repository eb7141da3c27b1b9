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
var AllRegressions = slices.Concat(regressions, clientRegressions, storeRegressions, quorumRegressions)

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
			{"abandoned.go", `	l.recordAbandoned()
	return`, `	return`},
		}}, ".", "TestOnlyOneBesideALostAnswer"},
	{Mutant{ID: "client-forgets-lost-grants", Bug: "many grants given back make a client forget one whose minimum hold keeps the name",
		Edits: []Edit{
			{"abandoned.go", `		a.kept.add(id, mostKept)`, `		a.others.add(id, mostOthers)`},
		}}, ".", "TestOnlyOneRemembersALostGrant"},
	{Mutant{ID: "client-spent-grant-is-a-run", Bug: "OnlyOne takes an unconfirmed grant of its own for a run of another",
		Edits: []Edit{
			{"await.go", `errors.Is(err, ErrUncertain) || a.asked || a.l.unanswered`,
				`errors.Is(err, ErrUncertain) || a.l.unanswered`},
		}}, ".", "TestOnlyOneAfterASpentConfirmation"},
	{Mutant{ID: "client-hold-ends-with-session",
		Bug: "OnlyOne takes a grant of its own, made as its session ended, for a run of another",
		Edits: []Edit{
			{"await.go", `	case errors.Is(err, ErrClosed): // a`, `	case false: // a`},
		}}, ".", "TestOnlyOneAfterASessionThatEnded"},
	{Mutant{ID: "client-failed-run-is-a-run", Bug: "OnlyOne takes a failed run that was given back for a run of another",
		Edits: []Edit{
			{"lease.go", `		l.recordAbandoned() // the store may hear of that late; an adopter has a request of its own
`, ``},
		}}, ".", "TestOnlyOneAfterAFailedRun"},
	{Mutant{ID: "client-adopted-is-unused", Bug: "an adopted lease that nobody gets ends without the minimum hold of its giver",
		Edits: []Edit{
			{"acquire.go", `		case l.takenOver: // an`, `		case false: // an`},
		}}, ".", "TestAdoptedLeaseThatNobodyGets"},
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
}
