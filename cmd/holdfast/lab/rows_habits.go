package lab

// Locks as they are written by hand: the loop, the release and the owner.

var habitRows = []Row{
	{
		ID: "loop-inverted", Title: "a loop that ends when the lock was not had", job: stock, Class: "S1", Lease: lease,
		Acquire: "SET R {me} NX PX 10000 → nil", Release: "DEL R",
		Habit: "while (tryLock(key)) sleep(…), which was meant to be while (!tryLock(key))",
		Why:   "The condition of the loop is the wrong way round: the loop goes on while the lock was had. So it ends at once if somebody else holds the lock, and then both work.",
		How:   "Lock returns a lease or an error; there is no loop to write",
		Play: `
			A asks
			A> SET R A NX PX 10000 → OK
			A thinks: "had it: once more", and sleeps
			A> SET R A NX PX 10000 → nil
			A thinks: "not had: the loop is over"
			A holds
			B locks
			A unlocks
			B unlocks`,
		sound: rivalTries,
	},
	{
		ID: "finally-unlock", Title: "unlock in finally, without having the lock", job: points, Class: "S1", Lease: lease,
		Acquire: "SET R 1 NX PX 10000 → OK", Release: "DEL R",
		Habit: "try { if (tryLock()) { … } } finally { unlock() }",
		Why:   "B does not get the lock, and its finally unlocks all the same. That removes A's lock, and C gets the lock while A holds it.",
		How:   "a refused caller has no lease, so there is nothing that it could release",
		Play: `
			A locks
			B is refused
			B thinks: returns, and its finally runs
			B> DEL R → 1
			C locks
			A unlocks
			C unlocks`,
		sound: rivalTries,
	},
	{
		ID: "same-owner", Title: "an owner that two programs share", job: gift, Class: "S1", Lease: lease,
		Acquire: "SET R main-1 NX PX 10000 → nil\nGET R → main-1", Release: "script: if GET R = main-1, DEL R",
		Habit: "the thread's name or number as the owner, \"so that the lock is re-entrant\"; containers that all have the process ID 1",
		Why:   "The owner is a thread's name, and every process has a thread of that name. B finds what it takes for its own lock, and enters as if it had it already.",
		How:   "every attempt has a random ID of its own; re-entrance is decided in the process, by the context",
		Play: `
			A asks
			A> SET R main-1 NX PX 10000 → OK
			A holds
			B locks
			lab: B has found its own name, and takes the lock for its own
			A unlocks
			B unlocks`,
		sound: rivalTries,
	},
	{
		ID: "expired-del-setnx", Title: "DEL of an old timestamp and SETNX, by two at once", job: stock, Class: "S1",
		Acquire: "GET R → 10000\nat: between GET and DEL\nDEL R\nSETNX R 30000 → 1", Release: "DEL R", Lease: lease,
		Habit: "a timestamp in the value, and \"if it is in the past, delete the key and lock again\"",
		Why:   "B and C both read the old timestamp. B deletes the key and gets the lock. C deletes the key, too, which is B's now, and gets the lock beside B.",
		How:   "the server decides in one step whether a lease is over, and who has the lock next",
		Play: `
			A asks
			A> SETNX R 10000 → 1
			A holds
			A crashes: its timestamp stays
			20s later: the timestamp is in the past
			B locks up to between GET and DEL
			C locks up to between GET and DEL
			B thinks: the timestamp is in the past
			C thinks: the timestamp is in the past
			B goes on
			C goes on
			B unlocks
			C unlocks`,
		sound: raceForDead,
	},
	{
		ID: "release-clock-inverted", Title: "a release that compares times the wrong way round", job: points, Class: "S1",
		Acquire: "SET R {until} NX PX 10000 → OK", Release: "GET R → as {seen}\nDEL R", Lease: lease,
		Habit: "if (now > expiry) delete(key), to be sure that nobody else's lock is deleted",
		Why:   "The release deletes the key if its own lease has ended, and leaves it if not: exactly the wrong way round. In time it frees nothing. Late it deletes the next holder's lock.",
		How:   "a release names the grant that it ends, and no clock decides",
		Play: `
			A remembers until: 10000
			A locks
			12s later: A is slow
			B remembers until: 22000
			B locks
			A thinks: it is 12000, and its own time was 10000: deletes the key
			A unlocks
			C remembers until: 22000
			C locks
			B thinks: it is 12000, and its own time is 22000: deletes nothing
			B writes
			C unlocks`,
		sound: slowHolder,
	},
	{
		ID: "pipeline-expire", Title: "SETNX and EXPIRE in one pipeline", job: stock, Class: "L1", Lease: lease,
		Acquire: "EXPIRE R 10\nSETNX R {me} → 1", Release: "DEL R",
		Habit: "both commands in one pipeline or transaction, \"so that the expiry cannot be forgotten\"",
		Why:   "EXPIRE is sent whether or not SETNX succeeds. So every try of a waiter makes the lease of the dead holder longer, and the lock never becomes free.",
		How:   "only the holder makes a lease longer; waiters cannot",
		Play: `
			A locks
			A> EXPIRE R 10 → 1
			A crashes: at work
			B waits
			8s later: B tries again, before the lease is over
			B tries again in vain
			8s later: B tries again
			B tries again in vain
			8s later: B tries again, and so on
			B tries again in vain
			look
			left over: 1`,
		sound: holderDies,
	},
	{
		ID: "incr-decr", Title: "a counter: INCR is 1 for the holder, DECR releases", job: gift, Class: "L2", Lease: lease,
		Acquire: "INCR R → 1", Release: "DECR R",
		Habit: "if (redis.incr(key) == 1) { expire(key, 10); … decr(key) }",
		Why:   "B's INCR counts although B does not get the lock. After A's DECR the counter is 1, and whoever comes counts on. It never is 1 again after an INCR.",
		How:   "a refused caller leaves nothing behind",
		Play: `
			A locks
			B is refused
			A unlocks
			C waits
			1m later: C tries again and again
			C tries again in vain
			1h later: C tries again and again
			C tries again in vain
			look
			left over: 1`,
		sound: rivalTries,
	},
	{
		ID: "retry-own-lock", Title: "SET NX, sent again after a lost answer", job: gift, Class: "L2", Lease: lease,
		Acquire: "SET R {me} NX PX 10000 → OK", Release: "script: if GET R = {me}, DEL R",
		Habit: "client libraries that repeat a command on a new connection",
		Why:   "A's SET takes effect, and its answer is lost. The client repeats it, and is refused by its own lock. A goes away, and nobody holds the lock that everybody is refused for.",
		How:   "an attempt that is repeated is recognised by its ID, and gets the lock that it already has",
		Play: `
			A asks
			A loses an answer: the connection breaks
			A> SET R A NX PX 10000 → no answer
			A thinks: the client library connects again, and repeats the command
			A> SET R A NX PX 10000 → nil
			A gives up: it is taken
			8s later: nobody holds the lock
			look
			B is refused`,
		sound: lostGrant,
	},
	{
		ID: "tries-one-short", Title: "tryLock(seconds, interval, tries), one try short", job: points, Class: "L2",
		Acquire: "SET R {me} NX PX 10000 → OK", Release: "script: if GET R = {me}, DEL R", Lease: lease,
		Habit: "a widely copied loop: while (--tries > 0) { if (lock()) return true; sleep(interval); }",
		Why:   "The counter goes down before the first try. With tries = 3 there are two tries; with tries = 1 there is none, and a free lock is refused without a single request.",
		How:   "TryLock is one try, and Lock waits until its context ends",
		Play: `
			look
			A asks
			A thinks: tries = 1, then 0: not greater than 0
			A gives up: returns false, and has asked nobody`,
		sound: freeLock,
	},
	{
		ID: "set-xx-renewal", Title: "renewal by SET XX", job: points, Class: "S1", Lease: lease,
		Acquire: "SET R {me} NX PX 10000 → OK", Release: "script: if GET R = {me}, DEL R",
		Renew: "SET R {me} XX PX 10000 → OK",
		Habit: "SET … XX, \"which only renews a lock that exists\"",
		Why:   "A's lease ends, and B gets the lock. A's SET XX finds a key, and overwrites it: A has renewed B's lock, and made it its own. B's release will find that it is not B's.",
		How:   "a renewal names the grant, and the store compares in the same step",
		Play: `
			A locks
			12s later: A's process stands still
			B locks
			A renews
			look
			A unlocks
			C locks
			B unlocks
			C unlocks`,
		sound: cutOff,
	},
	{
		ID: "token-random", Title: "a random number, called a fencing token", job: stock, Class: "S4", Lease: lease,
		Acquire: "SET R {token} NX PX 10000 → OK", Release: "script: if GET R = {token}, DEL R",
		Token: true,
		Habit: "token = random(), because \"the resource checks it\"",
		Why:   "The resource refuses tokens that are lower than one that it has seen. A's random number is the higher one. So it refuses B, which holds the lock, and accepts A, which has lost it.",
		How:   "tokens grow with every grant of a name",
		Play: `
			A remembers token: 7302
			A locks
			12s later: A is slow, and does not learn that its lease has ended
			B remembers token: 511
			B locks
			A unlocks
			B releases`,
		sound: cutOff,
	},
	{
		ID: "fair-dead-waiter", Title: "a queue in a list, and a waiter that dies", job: stock, Class: "L2", Lease: lease,
		Acquire: "RPUSH R:queue {me}\nLINDEX R:queue 0 → {me}\nSET R {me} NX PX 10000 → OK\nLPOP R:queue",
		Release: "script: if GET R = {me}, DEL R",
		Habit:   "a fair lock of a list of waiters, without a time limit for each (compare redisson#4661)",
		Why:     "Only the first of the list may take the lock. B was the first, and is dead. The lock is free, and C waits for B for ever.",
		How:     "a place in the queue is a lease, too: a dead waiter's place ends within a TTL",
		Play: `
			A locks
			B waits
			C waits
			B crashes: while it waits
			A unlocks
			C> LINDEX R:queue 0 → B
			C thinks: B comes first
			1m later: the lock is free
			C> LINDEX R:queue 0 → B
			1h later: the lock is free
			C> LINDEX R:queue 0 → B
			look
			left over: 0`,
		sound: deadWaiter,
	},
	{
		ID: "writer-starves", Title: "a counter of readers, and a writer waits for zero", job: points, Class: "L3",
		Lease:   lease,
		Acquire: "GET R:readers → nil | 0\nSET R {me} NX PX 10000 → OK\nINCR R:token → as {token}",
		Release: "script: if GET R = {me}, DEL R",
		Share:   "GET R → nil\nINCR R:readers\nINCR R:token → as {token}", Unshare: "DECR R:readers", Token: true,
		Habit: "a read/write lock of a counter and a key",
		Why:   "B waits until there is no reader. But a reader that comes later does not see B, and enters. While the readers overlap, the writer never gets its turn.",
		How:   "readers and writers stand in one queue: a reader that comes after a waiting writer waits behind it",
		Play: `
			A locks shared
			B waits
			B queues
			C locks shared
			A unshares
			B tries again in vain
			D locks shared
			C unshares
			B tries again in vain
			lab: and so on, as long as the readers overlap
			D unshares
			B tries again
			B unlocks`,
		sound: writerWaits,
	},
}
