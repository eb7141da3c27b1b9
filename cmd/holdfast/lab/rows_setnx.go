package lab

// The locks of the time before SET had NX and PX. Timestamps are milliseconds since the start.

var setnxRows = []Row{
	{
		ID: "setnx-expire", Title: "SETNX, then EXPIRE", job: stock, Class: "L1", Lease: lease,
		Acquire: "SETNX R 1 → 1\nat: between SETNX and EXPIRE\nEXPIRE R 10", Release: "DEL R",
		Habit: "two commands of a client library in a row, from before Redis 2.6.12",
		Why:   "A crashes between the two commands. The key has no expiry, so no client ever gets the lock again.",
		How:   "the server grants the lock and its lease in one step: after a crash the lock becomes free within a TTL",
		Play: `
			A locks up to between SETNX and EXPIRE
			A crashes: before its EXPIRE
			look
			B waits
			1m later: B tries again and again
			B tries again in vain
			1h later: B tries again and again
			B tries again in vain
			look
			B thinks: waits on. No client holds the lock, and none can take it: an operator must delete the key
			left over: 1`,
		sound: holderDies,
	},
	{
		ID: "setnx-getset-clock", Title: "SETNX and GETSET of a timestamp, one clock ahead", job: points, Class: "S1",
		Acquire: "SETNX R {until} → 1\nelse: GET R → as {seen}\nEXPIRE R 10", Release: "DEL R", Lease: lease,
		Habit: "the lock of the old SETNX manual page, with the clients' own clocks",
		Why:   "B's clock is 30 seconds ahead. It believes that A's lease has expired, and takes the lock in the middle of A's lease.",
		How:   "no client's clock matters: the server alone decides when a lease expires",
		Play: `
			A remembers until: 11000
			A locks
			lab: timestamps are milliseconds since the start. B's clock is 30 s ahead
			B asks
			B> SETNX R 41000 → 0
			B> GET R → 11000
			B thinks: it is 30000 by its clock, so the lease ended long ago: takes over the lock
			B> GETSET R 41000 → 11000
			B> EXPIRE R 10
			B holds
			B works
			B releases
			A unlocks`,
		sound: rivalOfAnyClock,
	},
	{
		ID: "setnx-getset-race", Title: "SETNX and GETSET of a timestamp, two at once", job: points, Class: "S1",
		Acquire: takeOver, Release: "DEL R", Lease: lease,
		Habit: "the same, with synchronous clocks",
		Why:   "B and C race for the lock of a crashed client. B's GETSET loses, but it has overwritten C's timestamp with its own, older one, and removed the expiry: D takes the lock while C holds it.",
		How:   "a loser of a race writes nothing",
		Play: `
			A asks
			A> SETNX R 11000 → 1
			A crashes: before its EXPIRE. The timestamp is meant for this case
			15s later: now A's timestamp is in the past
			B remembers until: 26000
			B asks
			B> SETNX R 26000 → 0
			B> GET R → 11000
			B thinks: wants to take over the lock, and is paused for a moment
			5s later: B is paused
			C remembers until: 31000
			C remembers old: 11000
			C locks
			B> GETSET R 26000 → 31000
			B gives up: the value has changed since its GET: another client was faster
			lab: B has lost the race, but the key has B's timestamp now, and no expiry
			look
			7s later: C works, well inside its lease of 10 s
			D remembers until: 38000
			D remembers old: 26000
			D thinks: the timestamp 26000 is in the past
			D locks
			D unlocks
			C unlocks`,
		sound: raceForDead,
	},
	{
		ID: "setnx-getset-release", Title: "SETNX and GETSET of a timestamp, late release", job: stock, Class: "S1",
		Acquire: "SETNX R 11000 → 1\nEXPIRE R 10", Release: "DEL R", Lease: lease,
		Habit: "the same, with work that once takes longer than expected",
		Why:   "A outlives its lease, B gets the lock, A's DEL removes B's lock, and C gets the lock while B holds it.",
		How:   "a slow holder renews its lease; a release names the grant that it ends",
		Play:  lateDelete, sound: slowHolder,
	},
}

// takeOver takes a lock whose timestamp is in the past.
const takeOver = "SETNX R {until} → 0\nGET R → {old}\nGETSET R {until} → {old}\nEXPIRE R 10"
