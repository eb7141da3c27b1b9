/* A client: the goroutine that wants the lock (await.go, lease.go), the keeper (keepalive.go), and
 * its two exchanges with the store. */

inline strike() { faults++; calm = 0; idle = 0 }

/* over ends c's request: Lease.ended, or await that returned. */
inline over()
{
	pushed[ID] = 0; late[ID] = false;
	phase[c] = OUT; proof[c] = 0; token[c] = 0; early[c] = 0; held[c] = 0;
	news[c] = 0; ntok[c] = 0; nage[c] = 0; retry[c] = 0; fired[c] = false;
	known[c] = false; due[c] = false;
	gx[c] = NONE; gage[c] = 0; gtok[c] = 0; glast[c] = 0; gretry[c] = 0; gslow[c] = false;
#ifdef DOWNGRADES
	reads[c] = false;
#endif
	round[c]++
}

/* leaveLine is the end of stand, without what becomes of it. */
inline leaveStand(next)
{
	phase[c] = next; retry[c] = 0; fired[c] = false
}

inline dropNews() { news[c] = 0; ntok[c] = 0; nage[c] = 0 }

/* admit is Client.admit. t: the token; age: that of its proof. */
inline admit(t, age)
{
	if
	:: age <= FRESH ->
		leaveStand(HELD);
		token[c] = t; proof[c] = age; held[c] = 0; early[c] = 0; known[c] = false;
		dropNews();
		pushed[ID] = 0; late[ID] = false;
		apart()
	:: else -> leaveStand(ASK)
	fi
}

inline giveUp(next)	/* next: LEAVE or GIVE */
{
	leaveStand(next);
	known[c] = false; dropNews(); due[c] = false; held[c] = 0; proof[c] = 0;
	gone[ID] = 0
}

inline closeG() { gx[c] = NONE; gage[c] = 0; gtok[c] = 0; glast[c] = 0; gretry[c] = 0; gslow[c] = false }
inline closeK() { kx[c] = NONE; kage[c] = 0; kid[c] = 0; khold[c] = 0; kans[c] = 0; ktok[c] = 0; kretry[c] = 0; kslow[c] = false }

inline closeS() { skind[c] = 0; sid[c] = 0; stok[c] = 0; sage[c] = 0 }

/* What the goroutine asks of the store. */
#define REQUEST (phase[c] == ASK -> ACQUIRE : (phase[c] == GIVE -> RELEASE : CANCEL))

/* strayG, strayK: the client does not wait for the exchange any more; the store may still process it. */
inline strayG()
{
	if
	:: gx[c] == SENT && !cut[c] ->
		sid[c] = ID; stok[c] = token[c]; sage[c] = gage[c]; 
		skind[c] = REQUEST
	:: else
	fi
}
inline strayK()
{
	if
	:: kx[c] == SENT && !cut[c] -> 
		sid[c] = kid[c]; stok[c] = khold[c]; sage[c] = kage[c]; skind[c] = RENEW
	:: else
	fi
}

/* begin is what a client does before it sends. */
#define BEGINS(c) (phase[c] == OUT && round[c] < ROUNDS && INTURN(c))
#define SENDS(c) (BEGINS(c) || phase[c] == HELD || gx[c] == NONE && (phase[c] == ASK || phase[c] >= GIVE) || \
	phase[c] == STAND && (fired[c] || news[c] == GONE))
inline begin()
{
	if
	:: phase[c] == OUT -> phase[c] = ASK
	:: phase[c] == HELD -> giveUp(GIVE)
	:: phase[c] == STAND ->
		if
		:: news[c] == GONE -> dropNews()
		:: else
		fi;
		leaveStand(ASK)
	:: else
	fi;
	gage[c] = 0
}

/* process is what the store makes of a request, and its answer. */
inline process()
{
	kind = REQUEST;
	serve(kind, ID, token[c]);
	if
	:: kind == ACQUIRE ->
		gtok[c] = tok;
		if
		:: !tok -> rest(); glast[c] = last; gretry[c] = n
		:: else
		fi
	:: else
	fi;
	tok = 0; n = 0; kind = 0
}

inline renewal() { due[c] = false; kid[c] = ID; khold[c] = token[c]; kage[c] = 0 }

inline processK()
{
	serve(RENEW, kid[c], khold[c]);
	kans[c] = why; ktok[c] = tok;
	if
	:: why == WAITING -> rest(); kretry[c] = n
	:: else
	fi;
	tok = 0; why = 0; n = 0
}

#ifdef NO_ASKING_AGAIN
#define DUE(c) (due[c] && kx[c] == NONE && phase[c] == HELD)
#else
#define DUE(c) (due[c] && kx[c] == NONE)
#endif

#ifdef TRUST_FROM_ANSWER
#define GPROOF 0
#define KPROOF 0
#else
#define GPROOF gage[c]	/* from when it was sent */
#define KPROOF kage[c]
#endif

/* mine: the keeper's exchange is about what the client wants now. */
#define MINE (round[c] < ROUNDS && kid[c] == ID)

/* apply is Client.apply, for the one lease or place that c has. */
inline apply()
{
	if
	:: MINE && khold[c] && phase[c] == HELD && kans[c] == ALIVE ->
		if
		:: KPROOF < proof[c] -> proof[c] = KPROOF; apart()
		:: else
		fi
	:: MINE && khold[c] && phase[c] == HELD && kans[c] == GONE -> over()
	:: MINE && !khold[c] && known[c] ->
		if
		:: kans[c] != GONE && KPROOF < proof[c] -> proof[c] = KPROOF
		:: else
		fi;
		dropNews();
		if
		:: kans[c] == WAITING ->
			if
			:: phase[c] == STAND -> retry[c] = kretry[c]; fired[c] = false
			:: else
			fi
		:: else -> news[c] = kans[c]; ntok[c] = ktok[c]; nage[c] = KPROOF
		fi
	:: else
	fi
}

#define MINE_STILL(x) (round[c] < ROUNDS && x == ID && (WANTS(c) || phase[c] == HELD))

/* Clients are alike, so those but 0, which the ghosts watch, begin in order. */
#define INTURN(c) (c < 2 || DIFFERS(c) || phase[c - 1] != OUT || round[c - 1])

#define MAY (faults < FAULTS)

active [N] proctype client()
{
	byte c = _pid;
	do

	/* --- await.go ------------------------------------------------------------------- */

	/* Client.acquire, Lease.ask, stand's timer and a renewal that says gone, Lease.Release,
	 * Lease.withdraw: the exchange is sent, and processed in the same step unless something is
	 * amiss: sending alone is seen by nobody. */
	:: d_step { RUNS(c) && SENDS(c) && !cut[c] ->
		begin();
		process();
		gx[c] = ANSWERED }
	:: d_step { RUNS(c) && SENDS(c) && cut[c] -> begin(); gx[c] = FAILED }
	:: d_step { MAY && RUNS(c) && SENDS(c) && !cut[c] -> strike(); begin(); gx[c] = FAILED }
	:: d_step { MAY && RUNS(c) && SENDS(c) && !cut[c] -> strike(); begin(); gx[c] = SENT }
	/* It arrives late. */
	:: d_step { gx[c] == SENT && !cut[c] ->
		process();
		calm = 0; idle = 0;
		gx[c] = ANSWERED }

	/* The answer to ask. */
	:: d_step { RUNS(c) && gx[c] == ANSWERED && phase[c] == ASK && gtok[c] ->
		tok = gtok[c]; n = GPROOF;
		if
		:: gage[c] < proof[c] -> proof[c] = gage[c]
		:: else
		fi;
		closeG();
		admit(tok, n);
		tok = 0; n = 0 }
	:: d_step { RUNS(c) && gx[c] == ANSWERED && phase[c] == ASK && !gtok[c] ->
		phase[c] = STAND; known[c] = true;
		proof[c] = GPROOF;
#ifndef NO_ASKING_AGAIN
		retry[c] = gretry[c];
#endif
#ifndef NO_PUSH_FILTER
		early[c] = glast[c];
		if
		:: pushed[ID] <= glast[c] -> pushed[ID] = 0; late[ID] = false
		:: else
		fi;
#endif
		closeG() }

	/* stand: a push; news of a renewal; the timer. */
	:: d_step { RUNS(c) && phase[c] == STAND && pushed[ID] > early[c] ->
		tok = pushed[ID]; pushed[ID] = 0; late[ID] = false;
#ifdef FULL_LEASE_AT_PUSH
		n = 0;
#else
		n = proof[c];
#endif
		admit(tok, n);
		tok = 0; n = 0 }
	:: d_step { RUNS(c) && phase[c] == STAND && news[c] == GRANTED ->
#ifdef PROOF_OF_ANOTHER
		n = proof[c];
#else
		n = nage[c];
#endif
		tok = ntok[c];
		dropNews();
		admit(tok, n);
		tok = 0; n = 0 }

	/* The context ends, in line or while an exchange runs. */
	:: d_step { RUNS(c) && WANTS(c) -> strayG(); closeG(); giveUp(LEAVE) }

	/* An exchange fails, or takes too long: ask again until the patience is over. */
	:: d_step { RUNS(c) && (gx[c] == SENT || gx[c] == ANSWERED) && gage[c] >= FRESH ->
		strayG(); closeG(); gx[c] = FAILED }
	:: d_step { RUNS(c) && gx[c] == FAILED && (phase[c] != ASK || proof[c] <= TTL) -> closeG(); gx[c] = PAUSE }
	:: d_step { RUNS(c) && gx[c] == FAILED && phase[c] == ASK && proof[c] > TTL -> closeG(); giveUp(LEAVE) }

	/* --- lease.go ------------------------------------------------------------------- */

	/* It lapses. Nobody has to call Release then. */
	:: d_step { RUNS(c) && phase[c] == HELD && proof[c] >= TRUST -> gone[ID] = 0; over() }
	/* The store has heard of it; or it has not, and nobody insists any more. */
	:: d_step { RUNS(c) && phase[c] >= GIVE && gx[c] == ANSWERED -> gone[ID] = OFF; over() }
	:: d_step { RUNS(c) && phase[c] >= GIVE && gx[c] == FAILED -> over() }

#ifdef DOWNGRADES
	/* Lease.Downgrade (reentry.go): the client reads from the call on, whatever comes back. */
	:: atomic { RUNS(c) && phase[c] == HELD && WRITES(c) ->
		if
		:: !cut[c] -> way = FINE
		:: cut[c] || MAY -> way = LOST
		:: !cut[c] && MAY -> way = ANSWER_LOST
		fi;
		d_step {
			if
			:: way != FINE && !cut[c] -> strike()
			:: else
			fi;
			if
			:: way != LOST -> serve(DOWNGRADE, ID, token[c])
			:: else
			fi;
#ifdef MODE_AT_ANSWER
			reads[c] = (way == FINE);
#else
			reads[c] = true;
#endif
			tok = 0; why = 0; way = 0 } }
	/* Client.insist */
	:: d_step { RUNS(c) && phase[c] == HELD && reads[c] && ht[ID] == token[c] && !shared[ID] && !cut[c] ->
		serve(DOWNGRADE, ID, token[c]);
		tok = 0; why = 0 }
#endif

	/* --- keepalive.go ---------------------------------------------------------------- */

	:: atomic { RUNS(c) && DUE(c) && !cut[c] ->
		if
		:: way = FINE
		:: MAY -> way = LOST	/* the request */
		:: MAY -> way = LATE	/* the request */
		:: MAY -> way = ANSWER_LOST
		:: MAY -> way = ANSWER_LATE
		:: MAY -> way = UNREAD	/* the process stops before it reads the answer */
		fi;
		d_step {
			renewal();
			if
			:: way != FINE -> strike()
			:: else
			fi;
			if
			:: way != LOST && way != LATE -> processK()
			:: else
			fi;
			if
			:: way == FINE -> apply(); closeK()
			:: way == LOST || way == ANSWER_LOST -> closeK(); kx[c] = FAILED
			:: way == LATE -> kx[c] = SENT
			:: way == ANSWER_LATE -> kx[c] = ANSWERED; kslow[c] = true
			:: way == UNREAD -> kx[c] = ANSWERED; paused[c] = true
			fi;
			way = 0 } }
	:: d_step { RUNS(c) && DUE(c) && cut[c] -> renewal(); kx[c] = FAILED }
	:: d_step { kx[c] == SENT && !cut[c] ->
		processK();
		calm = 0; idle = 0;
		kx[c] = ANSWERED }
	:: d_step { RUNS(c) && kx[c] == ANSWERED -> apply(); closeK() }
	:: d_step { RUNS(c) && (kx[c] == SENT || kx[c] == ANSWERED) && kage[c] >= FRESH ->
		strayK(); closeK(); kx[c] = FAILED }
	:: d_step { RUNS(c) && kx[c] == FAILED ->
		closeK();
		due[c] = !cut[c] && (known[c] || phase[c] == HELD) }

	/* --- requests that nobody waits for any more --------------------------------------- */

	/* They arrive within a TTL of when they were sent, or never. Else a place that a late Acquire
	 * has made anew is renewed, and a push of an older grant that is read only then is taken for
	 * proven by that renewal: see README.md. */
#ifdef ANY_DELAY
#define ARRIVES(c) true
#else
#define ARRIVES(c) (sage[c] <= TTL)
#endif

	:: d_step { skind[c] && ARRIVES(c) ->
		serve(skind[c], sid[c], stok[c]);
		tok = 0; why = 0; calm = 0; idle = 0;
		if
		:: MINE_STILL(sid[c]) -> skip
		:: else -> gone[sid[c]] = 0
		fi;
		closeS() }
	:: d_step { skind[c] -> closeS() }

	/* --- what goes wrong --------------------------------------------------------------- */

	/* While it is cut off everything gets lost. */
	:: d_step { cut[c] && gx[c] == SENT -> closeG(); gx[c] = FAILED }
	:: d_step { cut[c] && gx[c] == ANSWERED -> closeG(); gx[c] = FAILED }
	:: d_step { cut[c] && kx[c] == SENT -> kx[c] = FAILED }
	:: d_step { cut[c] && kx[c] == ANSWERED -> kx[c] = FAILED }
	:: d_step { cut[c] && round[c] < ROUNDS && pushed[ID] -> pushed[ID] = 0; late[ID] = false }
	:: d_step { cut[c] -> cut[c] = false; calm = 0; idle = 0 }
	:: d_step { paused[c] -> paused[c] = false; calm = 0; idle = 0 }
	:: d_step { MAY && RUNS(c) && phase[c] != OUT -> strike(); paused[c] = true }
	:: d_step { MAY && !cut[c] && phase[c] != OUT -> strike(); cut[c] = true }
	/* An answer or a push is lost, or late. */
	:: d_step { MAY && gx[c] == ANSWERED -> strike(); closeG(); gx[c] = FAILED }
	:: d_step { MAY && !gslow[c] && gx[c] == ANSWERED -> strike(); gslow[c] = true }
	:: d_step { MAY && WANTS(c) && pushed[ID] -> strike(); pushed[ID] = 0; late[ID] = false }
	:: d_step { MAY && WANTS(c) && pushed[ID] && !late[ID] -> strike(); late[ID] = true }

#ifdef GUARD
	/* --- the resource: package fence ------------------------------------------------- */

	/* The read is the first contact. Both it and the write may arrive long after the lease. */
	:: d_step { phase[c] == HELD && !used[c] -> used[c] = true; using[c] = token[c] }
	:: d_step { using[c] && !reading[c] ->
#ifdef CHECK_AT_WRITE
		reading[c] = true; behind[c] = false }
#else
		if
		:: using[c] >= seen -> seen = using[c]; reading[c] = true; behind[c] = false
		:: else -> using[c] = 0	/* fence.ErrStale */
		fi }
#endif
	:: d_step { using[c] && reading[c] ->
		if
#ifdef NO_CHECK
		:: true ->
#else
		:: using[c] >= seen ->
#endif
			PROMISE(guard, using[c] >= seen);
			PROMISE(no_lost_update, !behind[c]);
			seen = using[c];
			for (i : 0 .. N - 1) { behind[i] = reading[i] && i != c };
			i = 0
#ifndef NO_CHECK
		:: else
#endif
		fi;
		using[c] = 0; reading[c] = false; behind[c] = false }
#endif
	od
}
