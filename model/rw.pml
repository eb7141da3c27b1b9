/* The read/write lock: clients below WRITERS want it for writing, the others for reading. A writer may
 * become a reader (Downgrade). */

#ifndef WRITERS
#define WRITERS 1
#endif
#define WRITER(c) ((c) < WRITERS)
#define DIFFERS(c) (WRITER(c) && !WRITER((c) - 1) || !WRITER(c) && WRITER((c) - 1))
#define DOWNGRADES
#define FREED(x) shared[x] = false
#define GIVEN(x) skip
#include "state.pml"

bool shared[NI];	/* the store has downgraded the grant */
bool reads[N];		/* the client has downgraded it: Lease.req.Mode */

#define EXCLUSIVE(x) (WRITER(OF(x)) && !shared[x])
#define WRITES(c) (WRITER(c) && !reads[c])

/* rule.Fits, driver.Exclusive and driver.Shared. Sets ok. */
inline fits(x)
{
	ok = true; i = 0;
	do
	:: i == NI -> i = 0; break
#ifdef READERS_IGNORED
	:: i < NI && ht[i] && EXCLUSIVE(i) -> ok = false; i = 0; break
#else
	:: i < NI && ht[i] && (EXCLUSIVE(i) || WRITER(OF(x))) -> ok = false; i = 0; break
#endif
	:: else -> i++
	od
}

/* No two clients rely on leases of which one is a writer's. */
inline apart()
{
	i = 0;
	do
	:: i == N -> i = 0; break
	:: else -> PROMISE(exclusion, i == c || !TRUSTS(i) || !TRUSTS(c) || !WRITES(i) && !WRITES(c)); i++
	od
}

/* rule.Entry.Downgrade */
inline downgrade(x, t)
{
	if
	:: ht[x] && ht[x] == t -> shared[x] = true
	:: else
	fi
}

inline conserved() { skip }

#include "store.pml"
#include "client.pml"
#include "clock.pml"
