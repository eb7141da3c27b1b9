/* The semaphore: LIMIT permits, of which client 0 wants two and the others one. */

#define LIMIT 2
#define NEED(c) ((c) == 0 -> 2 : 1)
#define DIFFERS(c) ((c) == 1)
#define GIVEN(x) inuse = inuse + NEED(OF(x))
#define FREED(x) inuse = inuse - NEED(OF(x))
#include "state.pml"

byte inuse;	/* permits granted: "used" in redislock/lua/common.lua */

/* rule.Fits, driver.Permits. Sets ok. */
inline fits(x)
{
	ok = (inuse + NEED(OF(x)) <= LIMIT)
}

/* The clients that rely on their leases have no more permits than LIMIT. */
inline apart()
{
	i = 0; n = 0;
	do
	:: i == N -> i = 0; break
	:: i < N && TRUSTS(i) -> n = n + NEED(i); i++
	:: else -> i++
	od;
	PROMISE(exclusion, n <= LIMIT);
	n = 0
}

/* inuse is the sum of the grants. */
inline conserved()
{
	i = 0; n = 0;
	do
	:: i == NI -> i = 0; break
	:: i < NI && ht[i] -> n = n + NEED(OF(i)); i++
	:: else -> i++
	od;
	PROMISE(permits_conserved, n == inuse);
	n = 0
}

#include "store.pml"
#include "client.pml"
#include "clock.pml"
