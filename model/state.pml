/* The hand-over protocol: a store with a line; clients that hold, wait, renew, cancel, ask
 * again, are paused and cut off; a network that loses and delays; and a clock. The specs
 * (mutex.pml, rw.pml, semaphore.pml) say what a request wants and what may stand beside
 * what, then include this file. README.md says what is promised and what is left out.
 *
 * Each action is one d_step, so a state is always between two steps of somebody. Times are
 * ages and rests, never dates: runs need no end. What can go wrong is drawn from one budget
 * of FAULTS, each of which may strike anywhere; time does not pass while somebody
 * who is not struck has something to do.
 *
 * A macro in capitals inside #ifdef is a mistake that the test puts in (model_test.go), and
 * the properties must catch it.
 */

#ifndef N
#define N 3		/* clients */
#endif
#ifndef ROUNDS
#define ROUNDS 1	/* requests of each client, one after the other, each under its own id */
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef HOLD
#define HOLD 1		/* who may releases after at most so many steps */
#endif
#define TTL 3		/* in steps; renewals go out in each step, which is a third of the TTL */
#define FRESH (TTL / 3)	/* the oldest proof that startLease takes (await.go), and the longest exchange (exchange.go) */
#define MARGIN 1	/* Config.Margin */
#define DRIFT 1		/* by how much a client's clock may be behind after a TTL */
#ifdef NO_MARGIN
#define TRUST (TTL + DRIFT)
#else
#define TRUST (TTL - MARGIN + DRIFT)	/* session.trust (client.go) at its longest, by the store's clock */
#endif

#define NI (N * ROUNDS)
#define ID (c * ROUNDS + round[c])
#define OF(x) ((x) / ROUNDS)	/* whose request x is */
#define OLD (TTL + 1)		/* ages stop here */
#define OFF 255

#define PROMISE(name, e) if :: e :: else -> c_code { printf("broken: " #name "\n"); }; assert(false) fi

/* The store, as rule.Entry (internal/rule) has it. A hold is there while ht is not 0 and has run
 * out when hl is 0; a place is there while it is in q and has run out when pl is 0. */
byte ht[NI], hl[NI];	/* Holds: token, rest of the lease */
byte q[NI], ql, pl[NI];	/* Line: ids in order of arrival, how many, rest of the place */
byte last;		/* Last */

/* The network. A client has two exchanges at a time: g of the goroutine that waits, holds or
 * gives up, k of the keeper. */
#define NONE 0
#define SENT 1		/* the store has not processed it */
#define ANSWERED 2	/* the client has not read the answer */
#define FAILED 3	/* the client has not noticed */
#define PAUSE 4		/* it has, and tries again in the next step */
byte gx[N], gage[N], gtok[N], glast[N], gretry[N];	/* state, age; the answer: token, last token, Retry */
byte kx[N], kage[N], kid[N], khold[N], kans[N], ktok[N], kretry[N];	/* khold: the token renewed; 0: a place */
bool gslow[N], kslow[N];	/* it may last longer than a step */
byte skind[N], sid[N], stok[N], sage[N];	/* a request whose client does not wait for it any more; it may still arrive */
byte pushed[NI];		/* the token of a push under way */
bool late[NI];			/* it may last longer than a step */

/* kinds of requests */
#define ACQUIRE 1
#define RELEASE 2
#define CANCEL 3
#define RENEW 4
#define BREAK 5
#define DOWNGRADE 6
/* what becomes of a renewal */
#define FINE 1
#define LOST 2
#define LATE 3
#define ANSWER_LOST 4
#define ANSWER_LATE 5
#define UNREAD 6
/* driver.State */
#define GONE 1
#define GRANTED 2
#define WAITING 3
#define ALIVE 4		/* none: no news */

/* The clients. */
#define OUT 0		/* does not want the lock */
#define ASK 1		/* Lease.sendRequest: from the decision to ask until the answer was looked at (await.go) */
#define STAND 2		/* Lease.stand */
#define HELD 3		/* lease.go */
#define GIVE 4		/* Lease.Release, Lease.insistRelease */
#define LEAVE 5		/* Lease.withdraw */
byte phase[N], round[N];
byte proof[N];		/* age of wait.proof, or of what Lease.trusted counts from */
byte token[N];		/* Lease.token */
byte early[N];		/* pushes up to this token are of grants that had ended: session.waits (redislock/wake.go) */
byte news[N], ntok[N], nage[N];	/* wait.news: state, token, age of the exchange that told it */
byte retry[N];		/* rest of stand's timer */
bool fired[N];		/* it has fired */
bool known[N];		/* it is in Client.waits: the keeper renews its place */
bool due[N];		/* the keeper renews next: Client.keep */
byte held[N];		/* steps since it was admitted */
bool paused[N];		/* the process is stopped, maybe for ever */
bool cut[N];		/* nothing gets from it to the store, or back */

byte faults;		/* how many there were */

/* Ghosts: only the properties look at them. */
byte top;		/* the largest token ever given out */
byte ended;		/* tokens up to here were broken, or lost by the store: no lease under them is honoured */
byte gone[NI];		/* steps since a request was given up */
byte calm;		/* steps that client 0 has waited since the last fault */
byte idle;		/* steps since the last fault in which somebody who could have had it waited for it */

#ifdef LIVENESS
bool ticked;		/* changes in every step of time */
#endif

#ifdef GUARD
byte seen;		/* the resource: the highest token it knows */
bool used[N];		/* the client has begun to use it, once in each run */
byte using[N];		/* under this token */
bool reading[N];	/* it has read and may write */
bool behind[N];		/* somebody wrote since */
#endif

/* Scratch: 0 in every state. */
byte i, j, id, n, tok, why, turn;
byte kind, way, broken;
bool ok, went;

#define RUNS(c) (!paused[c])
#define WANTS(c) (phase[c] == ASK || phase[c] == STAND)
#define TRUSTS(c) (phase[c] == HELD && proof[c] < TRUST && token[c] > ended)
#define LIVES(x) (ht[x] && hl[x])

