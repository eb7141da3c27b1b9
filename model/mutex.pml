/* The mutex and its queue, with the fenced resource, the operator's break and the store's loss of data. */

#define DIFFERS(c) false	/* from c - 1 */
#define FREED(x) skip
#define GIVEN(x) skip
#include "state.pml"

/* rule.Fits, driver.Exclusive. Sets ok. */
inline fits(x)
{
	ok = true; i = 0;
	do
	:: i == NI -> i = 0; break
	:: ht[i] -> ok = false; i = 0; break
	:: else -> i++
	od
}

/* At most one client relies on its lease at a time. */
inline apart()
{
	i = 0;
	do
	:: i == N -> i = 0; break
	:: else -> PROMISE(exclusion, i == c || !TRUSTS(i) || !TRUSTS(c)); i++
	od
}

inline conserved() { skip }

#include "store.pml"
#include "client.pml"
#include "clock.pml"
