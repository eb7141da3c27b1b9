package mutant

// quorumRegressions are faults of late messages, most of them in a quorum, and of names that are kept after a release.
var quorumRegressions = []Regression{
	{Mutant{ID: "quorum-ends-a-later-grant", Bug: "a member's session cancels a request late, which then has another grant",
		Edits: []Edit{
			{"redislock/wake.go", `if s.isUndoing(id) {`, `if false {`},
		}}, "tests/redislock", "TestAskedAgain"},
	{Mutant{ID: "quorum-gives-up-for-good",
		Bug: "a server whose answer to a cancellation is late never counts again for the request",
		Edits: []Edit{
			{"redislock/quorum/withdraw.go", `vote.shut, vote.uncounted, vote.next = false, false, 0`,
				`vote.uncounted, vote.next = false, 0`},
		}}, "tests/quorum", "TestServerThatWasGivenUp"},
	{Mutant{ID: "quorum-late-withdrawal", Bug: "a withdrawal that arrives late ends a later grant of the request",
		Edits: []Edit{
			{"redislock/lua/cancel.lua", `if most and last > most then`, `if most and false then`},
		}}, "tests/redislock", "TestLateWithdrawal"},
	{Mutant{ID: "quorum-late-cancellation",
		Bug: "a member's session relies on a grant that its own cancellation may still end",
		Edits: []Edit{
			{"redislock/member.go", `if reply.Token == 0 || reply.Token > limit {`, `if reply.Token == 0 || limit >= 0 {`},
		}}, "tests/redislock", "TestAskedAgainLongBefore"},
	{Mutant{ID: "quorum-forgets-a-cancellation",
		Bug: "a member's session relies on a grant that a cancellation may end which it has forgotten",
		Edits: []Edit{
			{"redislock/renew.go", `s.forgotten = max(s.forgotten, u.limit)`, ``},
		}}, "redislock", "TestCancellationAfterHours"},
	{Mutant{ID: "quorum-cancels-after-a-yield",
		Bug: "a member's session cancels what a Yield has left without a limit, and ends a later grant",
		Edits: []Edit{
			{"redislock/member.go", `return nil, 0, s.ensureCancelled(`, `return nil, 0, s.Cancel(`},
		}}, "tests/redislock", "TestWithdrawnWhileYielding"},
	{Mutant{ID: "quorum-counts-a-withdrawn-grant",
		Bug: "a server counts whose grant a late withdrawal may still end",
		Edits: []Edit{
			{"redislock/quorum/request.go", `token > max(s.yielded, s.limit)`, `token > s.yielded`},
		}}, "redislock/quorum", "TestLateWithdrawal"},
	{Mutant{ID: "quorum-asks-while-withdrawn",
		Bug: "a server is asked before it has answered a withdrawal, and its grant stays for a TTL",
		Edits: []Edit{
			{"redislock/quorum/ask.go", `if vote.shut {`, `if false {`},
		}}, "redislock/quorum", "TestAskedWhileWithdrawn"},
	{Mutant{ID: "quorum-leaves-an-uncounted-grant",
		Bug: "a grant with a token that does not count stays for a TTL after the request has ended",
		Edits: []Edit{
			{"redislock/quorum/acquire.go", `vote.open > 0 || vote.uncounted ||`, `vote.open > 0 ||`},
		}}, "redislock/quorum", "TestUncountedGrant"},
	{Mutant{ID: "quorum-reader-finds-a-write-lease",
		Bug: "a writer's late request is granted at a server, where the reader then keeps a write lease",
		Edits: []Edit{
			{"redislock/quorum/release.go", `writer = r.votes[i].sent > 0`, `writer = r.votes[i].state == granted`},
		}}, "redislock/quorum", "TestDowngradedLater"},
	{Mutant{ID: "quorum-cancels-a-reader",
		Bug: "a late cancellation of a writer's place ends the grant of the same request as a reader",
		Edits: []Edit{
			{"redislock/quorum/release.go", `s.withdraw(r, p, done)`,
				"s.cancelOne(p, h.Name, h.ID, done)\n\t\t\tr.mu.Lock()\n\t\t\tr.gone(i, s.stamp.Add(1))\n\t\t\tr.mu.Unlock()"},
		}}, "redislock/quorum", "TestDowngradedWithALateEnd"},
	{Mutant{ID: "quorum-ended-grant-keeps",
		Bug: "a release after the lease has ended keeps the name at a server that never granted it",
		Edits: []Edit{
			{"redislock/quorum/release.go", `if driver.IsOver(outcome) { // a grant`, `if false { // a grant`},
		}}, "tests/quorum", "TestEndedGrantKeepsNothing"},
	{Mutant{ID: "redis-trusts-lost-renewals",
		Bug: "the quick release of a grant whose renewals were lost, and that has expired, reports success",
		Edits: []Edit{
			{"redislock/fastpath.go", `a.proved > 0 && s.b.now()-a.proved < s.ttl`, `s.b.now()-a.seen < s.ttl`},
		}}, "tests/redislock", "TestReleaseAfterLostRenewals"},
	{Mutant{ID: "quorum-undoes-a-push",
		Bug: "a member's session cancels a request because of a late push, and ends the grant that it has got since",
		Edits: []Edit{
			{"redislock/cancelled.go", "\ts.countUndoing(id, 1)\n\tgo func", "\tgo func"},
			{"redislock/cancelled.go", `_ = s.takeAway(ctx, name, id)`, `_, _ = s.endUpTo(ctx, name, id, maxToken)`},
		}}, "tests/redislock", "TestAskedAgainBeforeAPush"},
	{Mutant{ID: "quorum-late-minimum", Bug: "a server that gets a grant later than the others begins its minimum hold then",
		Edits: []Edit{
			{"redislock/quorum/minimum.go", `return max(r.driver.MinHold-(now-r.from), 0)`, `return r.driver.MinHold`},
		}}, "redislock/quorum", "TestMinimumOfALateServer"},
	{Mutant{ID: "quorum-forgets-a-place",
		Bug: "a waiter that one server has forgotten does not ask there again as long as another one is silent",
		Edits: []Edit{
			{"redislock/quorum/renew.go", "\t\ts.complete(r) // the servers without", "\t\t// the servers without"},
		}}, "tests/quorum", "TestForgottenPlace"},
	{Mutant{ID: "quorum-keeps-once", Bug: "a server that is away for a release never learns that the name is kept",
		Edits: []Edit{
			{"redislock/quorum/keep.go", `case s.later(k, p, func() { s.keepAt(k, p) }):`, `case false:`},
		}}, "tests/quorum", "TestKeptByServerThatWasAway"},
	{Mutant{ID: "quorum-releases-once", Bug: "a server that misses a release that keeps the name frees it when the lease ends",
		Edits: []Edit{
			{"redislock/quorum/release.go", `				s.keepAt(&own, p)
			default:`, `			default:`},
		}}, "tests/quorum", "TestKeepMissedByOne"},
	{Mutant{ID: "quorum-keeps-without-newborns", Bug: "a server that is in quarantine at a release never learns that the name is kept",
		Edits: []Edit{
			{"redislock/quorum/release.go", `now + s.b.quarantine + s.ttl + askLimit`, `now + 2*s.ttl`},
		}}, "tests/quorum", "TestKeptAfterQuarantine"},
	{Mutant{ID: "quorum-asks-after-release", Bug: "a server that is about to be asked for a grant is asked after its release, and keeps it",
		Edits: []Edit{
			{"redislock/quorum/ask.go", `if r.over { // its release`, `if false { // its release`},
		}}, "redislock/quorum", "TestAskedAfterRelease"},
	{Mutant{ID: "quorum-answer-before-the-grant", Bug: "a server's answer from before it granted a request counts as the end of that grant",
		Edits: []Edit{
			{"redislock/quorum/renew.go", `if asked.place && vote.state == granted {`, `if false {`},
		}}, "redislock/quorum", "TestAskedDuringRenewal"},
	{Mutant{ID: "quorum-forgets-a-raised-grant",
		Bug: "a request that offers a server under an old token, and is refused, forgets that it has the server",
		Edits: []Edit{
			{"redislock/quorum/agreement.go", `	if r.token == 0 && s.clock.now() < r.since.end() {
		stamp`, `	if false {
		stamp`},
		}}, "redislock/quorum", "TestYieldUnderAnOldToken"},
	{Mutant{ID: "quorum-keeps-an-old-end",
		Bug: "a server that a waiting request lost counts as the end of the grant that it gets later, which is not extended soon",
		Edits: []Edit{
			{"redislock/quorum/lease.go", `if s.heard < t.sent {`, `if false {`},
		}}, "redislock/quorum", "TestVoteEndedBeforeTheGrant"},
	{Mutant{ID: "quorum-leaves-a-lost-yield",
		Bug: "the release leaves a grant at a server whose yield was not answered",
		Edits: []Edit{
			{"redislock/quorum/agreement.go", `r.votes[p.index].state, r.votes[p.index].uncounted = nothing, true`,
				`r.votes[p.index].state = nothing`},
		}}, "redislock/quorum", "TestYieldDuringTheGrant"},
	{Mutant{ID: "quorum-asks-once-after-a-yield",
		Bug: "if a yield and the question after it are lost, the server is nobody's until the next renewal",
		Edits: []Edit{
			{"redislock/quorum/agreement.go", `case vote.state == nothing && vote.settled()`, `case false`},
		}}, "redislock/quorum", "TestYieldWithoutAnAnswer"},
	{Mutant{ID: "quorum-revives-a-broken-grant",
		Bug: "a grant that an operator ended while it began is made again at the server that reported that",
		Edits: []Edit{
			{"redislock/quorum/lease.go", `if s.heard < t.sent {`, `if true {`},
		}}, "redislock/quorum", "TestBrokenBeforeTheLastAnswer"},
	{Mutant{ID: "quorum-waits-with-a-majority",
		Bug: "a request that has got a majority with different tokens waits until it would claim servers again",
		Edits: []Edit{
			{"redislock/quorum/agreement.go", `case rank == 0 && r.lacking && r.timer.Stop():`, `case false:`},
		}}, "redislock/quorum", "TestMajorityAfterALongWait"},
	{Mutant{ID: "quorum-release-without-the-withdrawn",
		Bug: "a release is successful although servers that may have the grant have not answered",
		Edits: []Edit{
			{"redislock/quorum/release.go", `				taking++
`, ``},
		}}, "redislock/quorum", "TestReleaseAfterALostYield"},
	{Mutant{ID: "quorum-forgets-a-yielded-place",
		Bug: "a late answer from before a yield makes the session forget the place that the yield gave",
		Edits: []Edit{
			{"redislock/quorum/agreement.go", ` && t.stamp > vote.gave`, ``},
		}}, "redislock/quorum", "TestQuestionBeforeAYield"},
	{Mutant{ID: "quorum-raise-not-sent",
		Bug: "if a raise cannot be sent, the caller hears that nothing was done, and leaves the grants of a majority",
		Edits: []Edit{
			{"redislock/quorum/ask.go", `fmt.Errorf("%w: %v", driver.ErrUncertain, err) // servers`, `err // servers`},
		}}, "redislock/quorum", "TestRaiseNotSent"},
	{Mutant{ID: "quorum-cancels-with-the-renewal",
		Bug: "a server that has missed a release blocks the name until the next renewal, beside one that is away",
		Edits: []Edit{
			{"redislock/quorum/pending.go", `p.addPending(id, what) && s.begin(nil) == nil`, `p.addPending(id, what) && false`},
		}}, "redislock/quorum", "TestMissedReleaseBesideADeadServer"},
	{Mutant{ID: "quorum-cancelled-during-a-raise",
		Bug: "a request is cancelled during the raise of its grant, and the caller hears that nothing was done",
		Edits: []Edit{
			{"redislock/member.go", `reply, err = s.granted(ctx, req, token, 0)`, `if reply, err = s.granted(ctx, req, token, 0); err != nil { err = driver.ErrUnavailable }`},
		}}, "tests/redislock", "TestCancelledDuringARaise"},
	{Mutant{ID: "quorum-cancels-before-the-repeat",
		Bug: "a refused release is cancelled before its caller repeats it, which then looks like the end of the grant",
		Edits: []Edit{
			{"redislock/quorum/pending.go", `from = from.Add(s.ttl / 3)`, ``},
		}}, "redislock/quorum", "TestRefusedReleaseIsRepeated"},
	{Mutant{ID: "quorum-release-never-ends",
		Bug: "a server whose release fails after a repeated one was successful is nobody's for a third of the TTL",
		Edits: []Edit{
			{"redislock/quorum/release.go", `if outcome == nil || driver.IsOver(outcome) {
		s.releaseEnds`, `if false {
		s.releaseEnds`},
		}}, "redislock/quorum", "TestLateFailureOfARepeatedRelease"},
	{Mutant{ID: "quorum-downgrade-cancels",
		Bug: "a writer that becomes a reader cancels its request at a server, which then grants it again",
		Edits: []Edit{
			{"redislock/quorum/release.go", `			s.withdraw(r, p, done)`,
				"\t\t\ts.withdraw(r, p, done)\n\t\t\ts.cancelOne(p, h.Name, h.ID, func(error) {})"},
		}}, "redislock/quorum", "TestDowngradedBesideAQuestion"},
	{Mutant{ID: "quorum-place-of-the-dead",
		Bug: "a late question leaves a place beside a name that is kept, and later the grant of a request that is over",
		Edits: []Edit{
			{"redislock/quorum/keep.go", `if stray {`, `if stray && false {`},
		}}, "redislock/quorum", "TestPlaceBehindAKeptRelease"},
	{Mutant{ID: "quorum-late-place-ends-the-minimum",
		Bug: "the late answer about a place ends the minimum hold of a name whose release is repeated",
		Edits: []Edit{
			{"redislock/quorum/ask.go", `case r.over && r.keeps && s.sparesAt(req.ID, p.index):`, `case false:`},
		}}, "redislock/quorum", "TestLatePlaceBesideAKeptName"},
	{Mutant{ID: "quorum-late-grant-after-the-minimum",
		Bug: "a question that arrives after a short minimum hold leaves a grant for nobody at a server that was released",
		Edits: []Edit{
			{"redislock/quorum/ask.go", `if reply.Token != 0 && s.clock.now() >= r.kept || reply.Wake != nil {`,
				`if reply.Token != 0 && !r.keeps || reply.Wake != nil {`},
			{"redislock/quorum/ask.go", `and cancels it then
			vote.stray = vote.stray || reply.Token != 0 || reply.Wake != nil`, `and cancels it then
			vote.stray = vote.stray || reply.Wake != nil`},
		}}, "redislock/quorum", "TestGrantBehindAKeptName"},
	{Mutant{ID: "quorum-repeat-ends-the-minimum",
		Bug: "a repeated release that finds another request lets a cancellation end the minimum hold at other servers",
		Edits: []Edit{
			{"redislock/quorum/keep.go", `case !own && driver.IsOver(err) && slices.Contains(k.done, true):`, `case false:`},
		}}, "redislock/quorum", "TestRepeatedReleaseFindsAnother"},
	{Mutant{ID: "quorum-due-behind-others",
		Bug: "a cancellation that is due waits behind those of releases that are still repeated",
		Edits: []Edit{
			{"redislock/quorum/pending.go", `				pause.Reset()
			}
			if some =`,
				`			}
			if some =`},
		}}, "redislock/quorum", "TestReleaseEndsPending"},
}
