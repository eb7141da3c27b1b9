/* Time, the operator, and the store's loss of its data. */

/* HOT: c has to do something before time goes on. A request under way has been struck: it may stay
 * there; but c does not wait for its answer for more than FRESH. */
#define LONG(x, age) ((x == SENT || x == ANSWERED) && age > FRESH)
#define HOT(c) (RUNS(c) && ( \
	gx[c] == ANSWERED && !gslow[c] || gx[c] == FAILED || LONG(gx[c], gage[c]) || \
	kx[c] == ANSWERED && !kslow[c] || kx[c] == FAILED || LONG(kx[c], kage[c]) || DUE(c) || \
	(phase[c] == ASK || phase[c] >= GIVE) && gx[c] == NONE || \
	phase[c] == STAND && (fired[c] || news[c] || pushed[c * ROUNDS + round[c]] > early[c] && !late[c * ROUNDS + round[c]]) || \
	phase[c] == HELD && (proof[c] >= TRUST || held[c] >= HOLD)))
#if N == 2
#define ANYHOT (HOT(0) || HOT(1))
#elif N == 3
#define ANYHOT (HOT(0) || HOT(1) || HOT(2))
#else
#define ANYHOT (HOT(0) || HOT(1) || HOT(2) || HOT(3))
#endif

#define older(age, most) if :: age < most -> age++ :: else fi
#define younger(left) if :: left -> left-- :: else fi

/* What waits at most how long, in steps: see README.md. */
#define RECOVERY (TTL + 1)
#define WAITS (TTL + 1 + (N - 1) * (HOLD + 1))

inline tick()
{
	i = 0;
	do
	:: i == N -> i = 0; break
	:: else ->
		if
		:: gx[i] == SENT || gx[i] == ANSWERED -> older(gage[i], OLD)
		:: gx[i] == PAUSE -> gx[i] = NONE
		:: else
		fi;
		if
		:: kx[i] == SENT || kx[i] == ANSWERED -> older(kage[i], OLD)
		:: else
		fi;
#ifndef ANY_DELAY
		if
		:: skind[i] -> older(sage[i], OLD)
		:: else
		fi;
#endif
		if
		:: WANTS(i) || phase[i] == HELD -> older(proof[i], OLD)
		:: else
		fi;
		if
		:: news[i] == GRANTED -> older(nage[i], OLD)
		:: else
		fi;
		if
		:: retry[i] -> retry[i]--; fired[i] = (retry[i] == 0)
		:: else
		fi;
		if
		:: phase[i] == HELD -> older(held[i], HOLD)
		:: else
		fi;
		due[i] = known[i] || phase[i] == HELD;
		if
		:: RUNS(i) && !cut[i] && WANTS(i) -> ok = true
		:: RUNS(i) && !cut[i] && (phase[i] == HELD || phase[i] == GIVE) -> went = true
		:: else
		fi;
		i++
	od;
	do
	:: i == NI -> i = 0; break
	:: else ->
		younger(hl[i]);
#ifndef PLACES_FOR_EVER
		younger(pl[i]);
#endif
		if
		:: gone[i] == OFF
		:: gone[i] != OFF && !ht[i] && !pl[i] -> gone[i] = OFF
		:: else ->
			older(gone[i], OLD + 2);
			PROMISE(given_up_is_over, !LIVES(i) || gone[i] <= TTL + 2)
		fi;
		i++
	od;
#ifndef LIVENESS
	if
	:: ok && !went -> idle++; PROMISE(recovery, idle <= RECOVERY)
	:: else -> idle = 0
	fi;
	if
	:: WANTS(0) && RUNS(0) && !cut[0] -> calm++; PROMISE(no_lost_waiter, calm <= WAITS)
	:: else -> calm = 0
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
	/* Backend.Break, of the oldest grant. The broken holder may believe until its next renewal. */
	:: d_step { MAY && last > ended ->
		do
		:: i == NI -> break
		:: i < NI && LIVES(i) && ht[i] > ended && (n == 0 || ht[i] < n) -> n = ht[i]; broken = i; i++
		:: else -> i++
		od;
		i = 0;
		if
		:: n -> strike(); ended = n; n = 0; serve(BREAK, broken, 0)
		:: else
		fi;
		broken = 0 }
	/* The store restarts without its data. Its clock is not behind. */
	:: d_step { MAY && last ->
		strike();
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
/* Who waits is served, is told, or gives up; unless it is stopped or cut off for ever. */
ltl served { [] (WANTS(0) -> <> (!WANTS(0) || paused[0] || cut[0])) }
/* And time goes on: nothing above holds because everybody talks for ever within one step. */
ltl goes_on { ([] <> ticked) && ([] <> !ticked) }
#endif
