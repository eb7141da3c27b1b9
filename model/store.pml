/* The store. Its requests are those of rule.Entry (internal/rule), with which internal/modeltest compares
 * every real store step by step; on Redis the scripts in redislock/lua. */

inline remove()	/* removes q[j] from the queue */
{
	pl[q[j]] = 0;
	ql--;
	do
	:: j < ql -> q[j] = q[j + 1]; j++
	:: else -> q[j] = 0; j = 0; break
	od
}

inline find(x)	/* sets j: the place of x in the queue; ql if it has none */
{
	j = 0;
	do
	:: j < ql && q[j] != x -> j++
	:: else -> break
	od
}

/* drop ends the hold of x. */
inline drop(x) { ht[x] = 0; hl[x] = 0; FREED(x) }

/* rule.Entry.grant; mint and give in common.lua. It checks what is promised of each grant. */
inline grant(x, left)
{
	fits(x);
	PROMISE(fits, ok);
	ok = false;
#ifdef TOKEN_IS_COUNT
	last++;
#else
	last = top + 1;	/* max(now, last + 1): the clock is past every earlier token */
#endif
#ifdef NO_NEW_TOKEN
	if
	:: went && top -> last = top
	:: else
	fi;
#endif
	PROMISE(tokens_grow, last > top);
	top = last;
	ht[x] = last;
	hl[x] = left;
	GIVEN(x)
}

/* rule.Entry.Advance; advance in common.lua, and the first half of release.lua. */
inline advance()
{
	i = 0;
	do
	:: i == NI -> i = 0; break
	:: else ->
		if
#ifdef LEAK
		:: ht[i] && hl[i] == 0 -> ht[i] = 0
#else
		:: ht[i] && hl[i] == 0 -> drop(i)
#endif
		:: else
		fi;
		i++
	od;
	j = 0;
	do
	:: j == ql -> j = 0; break
	:: j < ql && pl[q[j]] == 0 ->
		n = j;
		remove();
		j = n; n = 0
	:: else -> j++
	od;
	do
	:: ql == 0 -> break
#ifdef NO_HAND_OVER
	:: ql -> break
#endif
	:: else ->
		id = q[0];
		fits(id);
		if
		:: !ok -> break
		:: else
		fi;
		ok = false;
		n = pl[id];
		j = 0;
		remove();
		went = true;
#ifdef HAND_OVER_FOR_EVER
		grant(id, OFF);
#else
#ifdef HAND_OVER_IN_FULL
		grant(id, TTL);
#else
		grant(id, n);	/* from the waiter's last renewal */
#endif
#endif
		went = false;
		pushed[id] = last;
		late[id] = false
	od;
	id = 0; n = 0; ok = false
}

/* rule.Entry.Acquire; acquire.lua */
inline acquire(x)
{
	find(x);
	if
	:: ht[x] ->
		PROMISE(expired_stays_expired, hl[x]);
		hl[x] = TTL;
		tok = ht[x]
#ifndef SECOND_PLACE
	:: !ht[x] && j < ql -> pl[x] = TTL
#endif
	:: else ->
		fits(x);
#ifdef BARGE
		if
		:: ok ->
#else
		if
		:: ok && ql == 0 ->
#endif
			ok = false;
			PROMISE(order, ql == 0);
			grant(x, TTL);
			tok = last
		:: else ->
			ok = false;
			PROMISE(one_place, j == ql);
			q[ql] = x;
			ql++;
			pl[x] = TTL
		fi
	fi;
	j = 0
}

/* rule.Entry.Release; release.lua, drop.lua */
inline release(x, t)
{
#ifdef RELEASE_ANY
	i = 0;
	do
	:: i == NI -> i = 0; break
	:: i < NI && ht[i] -> drop(i); i++
	:: else -> i++
	od
#else
#ifdef FREED_TWICE
	if
	:: ht[x] != t && inuse -> FREED(x)
	:: else
	fi;
#endif
	if
	:: ht[x] && ht[x] == t -> drop(x)
	:: else	/* ErrGone, ErrTaken */
	fi
#endif
}

/* rule.Entry.Cancel; cancel.lua */
inline cancel(x)
{
	find(x);
	if
	:: j < ql -> remove()
	:: else -> j = 0
	fi;
#ifndef CANCEL_KEEPS_GRANT
	if
	:: ht[x] -> drop(x)
	:: else
	fi
#endif
}

/* rule.Entry.Renew; renew.lua, refresh.lua. Sets why, and tok if it was granted. */
inline renew(x, t)
{
	find(x);
	if
	:: ht[x] && (!t || t == ht[x]) ->
		PROMISE(expired_stays_expired, hl[x]);
		hl[x] = TTL;
		if
		:: t -> why = ALIVE
		:: else -> why = GRANTED; tok = ht[x]
		fi
	:: t && ht[x] != t -> why = GONE
	:: !t && !ht[x] && j < ql -> pl[x] = TTL; why = WAITING
	:: !t && !ht[x] && j == ql -> why = GONE
	fi;
	j = 0
}

/* serve is one request at the store: time passes, the request is done, and what it freed goes to the
 * queue. It sets tok and why to the answer. */
inline serve(what, x, t)
{
	tok = 0; why = 0; turn = 0;
	do
	:: turn == 2 -> turn = 0; break
	:: else ->
#ifdef REVIVE
		if
		:: what != RENEW || !t || turn -> advance()	/* renew.lua without exp > now */
		:: else
		fi;
#else
		advance();
#endif
		if
		:: !turn && what == ACQUIRE -> acquire(x)
		:: !turn && what == RELEASE -> release(x, t)
		:: !turn && what == CANCEL -> cancel(x)
		:: !turn && what == RENEW -> renew(x, t)
		:: !turn && what == BREAK && ht[x] -> drop(x)
#ifdef DOWNGRADES
		:: !turn && what == DOWNGRADE -> downgrade(x, t)
#endif
		:: else
		fi;
		turn++
	od;
	conserved();
	if
	:: what == CANCEL ->
		find(x);
		PROMISE(cancel_leaves_nothing, j == ql && !ht[x]);
		j = 0
	:: else
	fi;
	if
	:: ql ->
		fits(q[0]);
		PROMISE(never_free_with_a_queue, !ok);
		ok = false
	:: else
	fi
}

/* firstExpiry sets n: when the first lease in the way expires (rule.Entry.Retry), at least one step. */
inline firstExpiry()
{
	n = 0; i = 0;
	do
	:: i == NI -> i = 0; break
	:: else ->
		if
		:: LIVES(i) && (n == 0 || hl[i] < n) -> n = hl[i]
		:: else
		fi;
		i++
	od
}
