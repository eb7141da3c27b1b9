/* A client: the goroutine that wants the lock (await.go, lease.go) and the keeper (keepalive.go), each with
 * its exchange with the store. */

inline countFault() { faults++; waited = 0; stalled = 0 }

/* endRequest ends c's request: Lease.ended, or the return of acquire. */
inline endRequest()
{
	pushed[ID] = 0; late[ID] = false;
	phase[c] = OUT; proof[c] = 0; token[c] = 0; early[c] = 0; held[c] = 0;
	result[c] = 0; ntok[c] = 0; nage[c] = 0; retry[c] = 0; fired[c] = false;
	known[c] = false; due[c] = false;
	gx[c] = NONE; gage[c] = 0; gtok[c] = 0; glast[c] = 0; gretry[c] = 0; gslow[c] = false;
#ifdef DOWNGRADES
	reads[c] = false;
#endif
	round[c]++
}

/* leaveQueue is the end of waitInQueue; next is the phase that follows. */
inline leaveQueue(next)
{
	phase[c] = next; retry[c] = 0; fired[c] = false
}

inline dropResult() { result[c] = 0; ntok[c] = 0; nage[c] = 0 }

/* startLease is Client.startLease. t: the token; age: that of its proof. */
inline startLease(t, age)
{
	if
	:: age <= FRESH ->
		leaveQueue(HELD);
		token[c] = t; proof[c] = age; held[c] = 0; early[c] = 0; known[c] = false;
		dropResult();
		pushed[ID] = 0; late[ID] = false;
		apart()
	:: else -> leaveQueue(ASK)
	fi
}

inline stopUsing(next)	/* next: CANCELLING or RELEASING */
{
	leaveQueue(next);
	known[c] = false; dropResult(); due[c] = false; held[c] = 0; proof[c] = 0;
	gone[ID] = 0
}

inline closeG() { gx[c] = NONE; gage[c] = 0; gtok[c] = 0; glast[c] = 0; gretry[c] = 0; gslow[c] = false }
inline closeK() { kx[c] = NONE; kage[c] = 0; kid[c] = 0; khold[c] = 0; kans[c] = 0; ktok[c] = 0; kretry[c] = 0; kslow[c] = false }

inline closeS() { skind[c] = 0; sid[c] = 0; stok[c] = 0; sage[c] = 0 }

/* The request of the goroutine. */
#define REQUEST (phase[c] == ASK -> ACQUIRE : (phase[c] == RELEASING -> RELEASE : CANCEL))

/* detachG, detachK: the client no longer waits for the exchange; the store may still process it. */
inline detachG()
{
	if
	:: gx[c] == SENT && !cut[c] ->
		sid[c] = ID; stok[c] = token[c]; sage[c] = gage[c]; 
		skind[c] = REQUEST
	:: else
	fi
}
inline detachK()
{
	if
	:: kx[c] == SENT && !cut[c] -> 
		sid[c] = kid[c]; stok[c] = khold[c]; sage[c] = kage[c]; skind[c] = RENEW
	:: else
	fi
}

/* begin is the client's step before it sends. */
#define BEGINS(c) (phase[c] == OUT && round[c] < ROUNDS && INTURN(c))
#define SENDS(c) (BEGINS(c) || phase[c] == HELD || gx[c] == NONE && (phase[c] == ASK || phase[c] >= RELEASING) || \
	phase[c] == QUEUED && (fired[c] || result[c] == GONE))
inline begin()
{
	if
	:: phase[c] == OUT -> phase[c] = ASK
	:: phase[c] == HELD -> stopUsing(RELEASING)
	:: phase[c] == QUEUED ->
		if
		:: result[c] == GONE -> dropResult()
		:: else
		fi;
		leaveQueue(ASK)
	:: else
	fi;
	gage[c] = 0
}

/* serveG is the store's step: it serves a request and answers. */
inline serveG()
{
	kind = REQUEST;
	serve(kind, ID, token[c]);
	if
	:: kind == ACQUIRE ->
		gtok[c] = tok;
		if
		:: !tok -> firstExpiry(); glast[c] = last; gretry[c] = n
		:: else
		fi
	:: else
	fi;
	tok = 0; n = 0; kind = 0
}

inline renewal() { due[c] = false; kid[c] = ID; khold[c] = token[c]; kage[c] = 0 }

inline serveK()
{
	serve(RENEW, kid[c], khold[c]);
	kans[c] = why; ktok[c] = tok;
	if
	:: why == WAITING -> firstExpiry(); kretry[c] = n
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

/* MINE: the keeper's exchange is about the client's current request. */
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
	:: MINE && khold[c] && phase[c] == HELD && kans[c] == GONE -> endRequest()
	:: MINE && !khold[c] && known[c] ->
		if
		:: kans[c] != GONE && KPROOF < proof[c] -> proof[c] = KPROOF
		:: else
		fi;
		dropResult();
		if
		:: kans[c] == WAITING ->
			if
			:: phase[c] == QUEUED -> retry[c] = kretry[c]; fired[c] = false
			:: else
			fi
		:: else -> result[c] = kans[c]; ntok[c] = ktok[c]; nage[c] = KPROOF
		fi
	:: else
	fi
}

#define MINE_STILL(x) (round[c] < ROUNDS && x == ID && (WANTS(c) || phase[c] == HELD))

/* Clients are alike, so all but client 0, which the ghosts observe, begin in order. */
#define INTURN(c) (c < 2 || DIFFERS(c) || phase[c - 1] != OUT || round[c - 1])

#define MAY (faults < FAULTS)

active [N] proctype client()
{
	byte c = _pid;
	do

	/* --- await.go ------------------------------------------------------------------- */

	/* Client.acquire, Lease.sendRequest, the timer of waitInQueue, a renewal that reports Gone,
	 * Lease.Release, Lease.cancelRequest: the client sends, and the store processes the exchange in
	 * the same step unless there is a fault. No other process can observe the sending alone. */
	:: d_step { RUNS(c) && SENDS(c) && !cut[c] ->
		begin();
		serveG();
		gx[c] = ANSWERED }
	:: d_step { RUNS(c) && SENDS(c) && cut[c] -> begin(); gx[c] = FAILED }
	:: d_step { MAY && RUNS(c) && SENDS(c) && !cut[c] -> countFault(); begin(); gx[c] = FAILED }
	:: d_step { MAY && RUNS(c) && SENDS(c) && !cut[c] -> countFault(); begin(); gx[c] = SENT }
	/* It arrives late. */
	:: d_step { gx[c] == SENT && !cut[c] ->
		serveG();
		waited = 0; stalled = 0;
		gx[c] = ANSWERED }

	/* The answer to sendRequest. */
	:: d_step { RUNS(c) && gx[c] == ANSWERED && phase[c] == ASK && gtok[c] ->
		tok = gtok[c]; n = GPROOF;
		if
		:: gage[c] < proof[c] -> proof[c] = gage[c]
		:: else
		fi;
		closeG();
		startLease(tok, n);
		tok = 0; n = 0 }
	:: d_step { RUNS(c) && gx[c] == ANSWERED && phase[c] == ASK && !gtok[c] ->
		phase[c] = QUEUED; known[c] = true;
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

	/* waitInQueue: a push; the result of a renewal; the timer. */
	:: d_step { RUNS(c) && phase[c] == QUEUED && pushed[ID] > early[c] ->
		tok = pushed[ID]; pushed[ID] = 0; late[ID] = false;
#ifdef FULL_LEASE_AT_PUSH
		n = 0;
#else
		n = proof[c];
#endif
		startLease(tok, n);
		tok = 0; n = 0 }
	:: d_step { RUNS(c) && phase[c] == QUEUED && result[c] == GRANTED ->
#ifdef PROOF_OF_ANOTHER
		n = proof[c];
#else
		n = nage[c];
#endif
		tok = ntok[c];
		dropResult();
		startLease(tok, n);
		tok = 0; n = 0 }

	/* The context ends, in the queue or during an exchange. */
	:: d_step { RUNS(c) && WANTS(c) -> detachG(); closeG(); stopUsing(CANCELLING) }

	/* An exchange fails, or takes too long: ask again until the time limit for a silent store has passed. */
	:: d_step { RUNS(c) && (gx[c] == SENT || gx[c] == ANSWERED) && gage[c] >= FRESH ->
		detachG(); closeG(); gx[c] = FAILED }
	:: d_step { RUNS(c) && gx[c] == FAILED && (phase[c] != ASK || proof[c] <= TTL) -> closeG(); gx[c] = PAUSE }
	:: d_step { RUNS(c) && gx[c] == FAILED && phase[c] == ASK && proof[c] > TTL -> closeG(); stopUsing(CANCELLING) }

	/* --- lease.go ------------------------------------------------------------------- */

	/* The lease expires. Nobody has to call Release then. */
	:: d_step { RUNS(c) && phase[c] == HELD && proof[c] >= TRUST -> gone[ID] = 0; endRequest() }
	/* The store has processed the release or cancel; or it has not, and the task has ended. */
	:: d_step { RUNS(c) && phase[c] >= RELEASING && gx[c] == ANSWERED -> gone[ID] = OFF; endRequest() }
	:: d_step { RUNS(c) && phase[c] >= RELEASING && gx[c] == FAILED -> endRequest() }

#ifdef DOWNGRADES
	/* Lease.Downgrade (reentry.go): the client only reads from the call on, whatever the answer. */
	:: atomic { RUNS(c) && phase[c] == HELD && WRITES(c) ->
		if
		:: !cut[c] -> way = FINE
		:: cut[c] || MAY -> way = LOST
		:: !cut[c] && MAY -> way = ANSWER_LOST
		fi;
		d_step {
			if
			:: way != FINE && !cut[c] -> countFault()
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
	/* Client.startTask */
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
			:: way != FINE -> countFault()
			:: else
			fi;
			if
			:: way != LOST && way != LATE -> serveK()
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
		serveK();
		waited = 0; stalled = 0;
		kx[c] = ANSWERED }
	:: d_step { RUNS(c) && kx[c] == ANSWERED -> apply(); closeK() }
	:: d_step { RUNS(c) && (kx[c] == SENT || kx[c] == ANSWERED) && kage[c] >= FRESH ->
		detachK(); closeK(); kx[c] = FAILED }
	:: d_step { RUNS(c) && kx[c] == FAILED ->
		closeK();
		due[c] = !cut[c] && (known[c] || phase[c] == HELD) }

	/* --- requests that nobody waits for -------------------------------------------------- */

	/* They arrive within a TTL of when they were sent, or never. Otherwise a late Acquire makes a new place,
	 * and the client renews that place. It then reads a push of an older grant and takes the grant for
	 * proved by that renewal: see README.md. */
#ifdef ANY_DELAY
#define ARRIVES(c) true
#else
#define ARRIVES(c) (sage[c] <= TTL)
#endif

	:: d_step { skind[c] && ARRIVES(c) ->
		serve(skind[c], sid[c], stok[c]);
		tok = 0; why = 0; waited = 0; stalled = 0;
		if
		:: MINE_STILL(sid[c]) -> skip
		:: else -> gone[sid[c]] = 0
		fi;
		closeS() }
	:: d_step { skind[c] -> closeS() }

	/* --- faults ------------------------------------------------------------------------ */

	/* While the client is cut off, every message is lost. */
	:: d_step { cut[c] && gx[c] == SENT -> closeG(); gx[c] = FAILED }
	:: d_step { cut[c] && gx[c] == ANSWERED -> closeG(); gx[c] = FAILED }
	:: d_step { cut[c] && kx[c] == SENT -> kx[c] = FAILED }
	:: d_step { cut[c] && kx[c] == ANSWERED -> kx[c] = FAILED }
	:: d_step { cut[c] && round[c] < ROUNDS && pushed[ID] -> pushed[ID] = 0; late[ID] = false }
	:: d_step { cut[c] -> cut[c] = false; waited = 0; stalled = 0 }
	:: d_step { paused[c] -> paused[c] = false; waited = 0; stalled = 0 }
	:: d_step { MAY && RUNS(c) && phase[c] != OUT -> countFault(); paused[c] = true }
	:: d_step { MAY && !cut[c] && phase[c] != OUT -> countFault(); cut[c] = true }
	/* An answer or a push is lost, or late. */
	:: d_step { MAY && gx[c] == ANSWERED -> countFault(); closeG(); gx[c] = FAILED }
	:: d_step { MAY && !gslow[c] && gx[c] == ANSWERED -> countFault(); gslow[c] = true }
	:: d_step { MAY && WANTS(c) && pushed[ID] -> countFault(); pushed[ID] = 0; late[ID] = false }
	:: d_step { MAY && WANTS(c) && pushed[ID] && !late[ID] -> countFault(); late[ID] = true }

#ifdef GUARD
	/* --- the resource: package fence ------------------------------------------------- */

	/* The read is the first contact. Read and write may both arrive long after the lease. */
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
