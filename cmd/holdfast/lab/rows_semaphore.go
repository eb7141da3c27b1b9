package lab

// Semaphores that count.

var semaphoreRows = []Row{
	{
		ID: "semaphore-release-retry", Title: "a counter as semaphore, release sent again after a lost reply", job: encoders,
		Acquire: "DECR R → >=0\nelse: INCR R", Release: "INCR R", Class: "S5", Lease: lease,
		Habit: "a counter of free permits; clients that repeat a command on a new connection",
		Why:   "A's INCR is executed, but its answer is lost, and the client sends it again. From now on there is one permit too many: three clients work where two may.",
		How:   "a release names the grant that it ends: sent twice, it does nothing the second time",
		Play: `
			lab> SET R 2
			A locks
			B locks
			C is refused
			A loses an answer: the answer to its next command is lost on its way: the connection breaks
			A releases
			A thinks: does not know the outcome of its command, connects again and repeats it
			A> INCR R → 2
			look
			C locks
			D locks
			lab: B, C and D work at the same time, with a limit of 2
			B releases
			C releases
			D releases
			look`,
		sound: lostRelease,
	},
	{
		ID: "semaphore-counter-crash", Title: "a counter as semaphore, a holder dies", job: encoders, Class: "L1",
		Acquire: "DECR R → >=0\nelse: INCR R", Release: "INCR R", Lease: lease,
		Habit: "a counter of free permits",
		Why:   "A and B crash with their permits. A counter does not record the holders, so the permits never return.",
		How:   "each permit is a lease: a crashed client's permits are free after a TTL",
		Play: `
			lab> SET R 2
			A locks
			B locks
			A crashes: the process is killed
			B crashes: the process is killed
			C waits
			1h later: C tries again and again
			C tries again in vain
			1h later: C tries again and again
			C tries again in vain
			look
			C thinks: waits on. No client works, and none can get a permit
			left over: 2`,
		sound: permitHoldersDie,
	},
}

// encoders is a job of which two may run.
var encoders = &job{lock: "encoders", limit: 2}
