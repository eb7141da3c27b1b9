package lab

// The lock that gives its timestamp to the caller as a credential: the time plus the lease plus 15 s.

var credentialRows = []Row{
	{
		ID: "credential-overwritten", Title: "a timestamp as credential, overwritten by the loser of a race", job: stock,
		Acquire: "SETNX R {mine} → 0\nGET R → {old}\nGETSET R {mine} → {old}\nPEXPIRE R 10000", Class: "L4", Lease: lease,
		Release: "GET R → {mine}\nDEL R",
		Habit:   "home-made lock classes that return a number to unlock with",
		Why:     "B loses the race, but its GETSET has replaced C's credential. C, the true owner, cannot release: the lock stays taken without a holder.",
		How:     "only the step that grants the lock writes its owner",
		Play: `
			A asks
			A> SETNX R 25000 → 1
			A crashes: before its PEXPIRE
			30s later: now A's timestamp is in the past
			B asks
			B> SETNX R 55000 → 0
			B> GET R → 25000
			B thinks: wants to take over the lock, and is paused for a moment
			1s later: B is paused
			C remembers mine: 56000
			C remembers old: 25000
			C locks
			B> GETSET R 55000 → 56000
			B gives up: the value has changed since its GET: another client was faster
			lab: B has lost the race, but the key has B's timestamp now, without expiry
			C unlocks
			lab: the value is not C's credential 56000: it may not release
			look
			lab: no client holds the lock, and no client can get it until the timestamp is in the past: 24 seconds
			left over: 1`,
		sound: raceForDead,
	},
	{
		ID: "credential-compare-del", Title: "a timestamp as credential, compared before DEL", job: points, Class: "S1",
		Acquire: "SETNX R {me}25000 → 1\nPEXPIRE R 10000", Lease: lease,
		Release: "GET R → {me}25000\nat: between the check and DEL\nDEL R",
		Habit:   "the same",
		Why:     "A's lease ends between its GET and its DEL. The DEL removes B's lock, and C gets the lock while B holds it.",
		How:     "the server compares and removes in one step, so a late release removes nothing",
		Play:    gapInRelease, sound: cutOff,
	},
	{
		ID: "credential-clock-del", Title: "a timestamp as credential, compared with the clock before DEL", job: gift,
		Acquire: "SETNX R 25000 → 1\nPEXPIRE R 10000", Class: "S1", Lease: lease,
		Release: "at: between the check and DEL\nDEL R",
		Habit:   "the same, with one round trip less: if the credential is still in the future, DEL",
		Why:     "A looks at its clock, is paused, and sends a DEL that removes B's lock; C gets the lock while B holds it.",
		How:     "the server compares and removes in one step, so a late release removes nothing",
		Play:    gapInRelease, sound: cutOff,
	},
}
