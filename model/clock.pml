/* Time, the operator, and the store's loss of its data. */

/* HOT: c has to do something before time goes on. A request with a fault may stay under way, but c does
 * not wait for its answer for more than FRESH. */
#define LONG(x, age) ((x == SENT || x == ANSWERED) && age > FRESH)
#define HOT(c) (RUNS(c) && ( \
	gx[c] == ANSWERED && !gslow[c] || gx[c] == FAILED || LONG(gx[c], gage[c]) || \
	kx[c] == ANSWERED && !kslow[c] || kx[c] == FAILED || LONG(kx[c], kage[c]) || DUE(c) || \
	(phase[c] == ASK || phase[c] >= RELEASING) && gx[c] == NONE || \
	phase[c] == QUEUED && (fired[c] || result[c] || pushed[c * ROUNDS + round[c]] > early[c] && !late[c * ROUNDS + round[c]]) || \
	phase[c] == HELD && (proof[c] >= TRUST || held[c] >= HOLD)))
#if N == 2
#define ANYHOT (HOT(0) || HOT(1))
#elif N == 3
#define ANYHOT (HOT(0) || HOT(1) || HOT(2))
#else
#define ANYHOT (HOT(0) || HOT(1) || HOT(2) || HOT(3))
#endif

#define grow(age, most) if :: age < most -> age++ :: else fi
#define shorten(left) if :: left -> left-- :: else fi

/* The longest waits, in steps: see README.md. */
#define RECOVERY (TTL + 1)
#define WAITS (TTL + 1 + (N - 1) * (HOLD + 1))

inline tick()
{
	i = 0;
	do
	:: i == N -> i = 0; break
	:: else ->
		if
		:: gx[i] == SENT || gx[i] == ANSWERED -> grow(gage[i], OLD)
		:: gx[i] == PAUSE -> gx[i] = NONE
		:: else
		fi;
		if
		:: kx[i] == SENT || kx[i] == ANSWERED -> grow(kage[i], OLD)
		:: else
		fi;
#ifndef ANY_DELAY
		if
		:: skind[i] -> grow(sage[i], OLD)
		:: else
		fi;
#endif
		if
		:: WANTS(i) || phase[i] == HELD -> grow(proof[i], OLD)
		:: else
		fi;
		if
		:: result[i] == GRANTED -> grow(nage[i], OLD)
		:: else
		fi;
		if
		:: retry[i] -> retry[i]--; fired[i] = (retry[i] == 0)
		:: else
		fi;
		if
		:: phase[i] == HELD -> grow(held[i], HOLD)
		:: else
		fi;
		due[i] = known[i] || phase[i] == HELD;
		if
		:: RUNS(i) && !cut[i] && WANTS(i) -> ok = true
		:: RUNS(i) && !cut[i] && (phase[i] == HELD || phase[i] == RELEASING) -> went = true
		:: else
		fi;
		i++
	od;
	do
	:: i == NI -> i = 0; break
	:: else ->
		shorten(hl[i]);
#ifndef PLACES_FOR_EVER
		shorten(pl[i]);
#endif
		if
		:: gone[i] == OFF
		:: gone[i] != OFF && !ht[i] && !pl[i] -> gone[i] = OFF
		:: else ->
			grow(gone[i], OLD + 2);
			PROMISE(given_up_expires, !LIVES(i) || gone[i] <= TTL + 2)
		fi;
		i++
	od;
#ifndef LIVENESS
	if
	:: ok && !went -> stalled++; PROMISE(recovery, stalled <= RECOVERY)
	:: else -> stalled = 0
	fi;
	if
	:: WANTS(0) && RUNS(0) && !cut[0] -> waited++; PROMISE(no_lost_waiter, waited <= WAITS)
	:: else -> waited = 0
	fi;
#endif
	ok = false; went = false
}

active proctype world()
{
	i = 0;
	do
	:: i < NI -> gone[i] = OFF; i++
	:: else -> i = 0; break
	od;
	do
	:: d_step { !ANYHOT -> tick();
#ifdef LIVENESS
		ticked = !ticked
#endif
		}
#ifdef OPERATOR
	/* Backend.Break of the oldest grant. Its holder may rely on the lease until its next renewal. */
	:: d_step { MAY && last > ended ->
		do
		:: i == NI -> break
		:: i < NI && LIVES(i) && ht[i] > ended && (n == 0 || ht[i] < n) -> n = ht[i]; broken = i; i++
		:: else -> i++
		od;
		i = 0;
		if
		:: n -> countFault(); ended = n; n = 0; serve(BREAK, broken, 0)
		:: else
		fi;
		broken = 0 }
	/* The store restarts without its data. Its clock is not behind. */
	:: d_step { MAY && last ->
		countFault();
		do
		:: i == NI -> break
		:: else ->
			if
			:: ht[i] -> drop(i)
			:: else
			fi;
			pl[i] = 0; q[i] = 0; i++
		od;
		i = 0; ended = top; last = 0; ql = 0 }
#endif
	od
}

#ifdef LIVENESS
/* A waiter is served, notices a loss, or gives up, unless it is stopped or cut off for ever. */
ltl served { [] (WANTS(0) -> <> (!WANTS(0) || paused[0] || cut[0])) }
/* Time goes on: nothing above holds because the processes go on for ever within one step. */
ltl goes_on { ([] <> ticked) && ([] <> !ticked) }
#endif
