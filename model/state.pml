/* The hand-over protocol: a store with a queue; clients that hold, wait, renew, cancel, ask
 * again, are paused and cut off; a network that loses and delays messages; and a clock. The
 * specs (mutex.pml, rw.pml, semaphore.pml) define what a request wants and which grants may
 * exist together, then include this file. README.md lists the promises and what is left out.
 *
 * Each action is one d_step, so a state is always between two steps of some process. Times are
 * ages and remaining times, never dates, so runs need no end. All faults are drawn from one
 * budget of FAULTS, and each may occur anywhere. Time does not pass while a process without
 * a fault has something to do.
 *
 * A macro in capitals inside #ifdef is a mistake that the test puts in (model_test.go), and
 * the properties must catch it.
 */

#ifndef N
#define N 3		/* clients */
#endif
#ifndef ROUNDS
#define ROUNDS 1	/* requests of each client, one after the other, each under its own ID */
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef HOLD
#define HOLD 1		/* a holder that runs releases after at most so many steps */
#endif
#define TTL 3		/* in steps; renewals go out in each step, which is a third of the TTL */
#define FRESH (TTL / 3)	/* the oldest proof that startLease takes (await.go), and the longest exchange (exchange.go) */
#define MARGIN 1	/* Config.Margin */
#define DRIFT 1		/* how far a client's clock may be behind after a TTL */
#ifdef NO_MARGIN
#define TRUST (TTL + DRIFT)
#else
#define TRUST (TTL - MARGIN + DRIFT)	/* session.trust (client.go) at its longest, by the store's clock */
#endif

#define NI (N * ROUNDS)
#define ID (c * ROUNDS + round[c])
#define OF(x) ((x) / ROUNDS)	/* the client of request x */
#define OLD (TTL + 1)		/* ages stop here */
#define OFF 255

#define PROMISE(name, e) if :: e :: else -> c_code { printf("broken: " #name "\n"); }; assert(false) fi

/* The store, as in rule.Entry (internal/rule). A hold exists while ht is not 0 and has expired when hl is
 * 0; a place exists while it is in q and has expired when pl is 0. */
byte ht[NI], hl[NI];	/* Holds: token, time left of the lease */
byte q[NI], ql, pl[NI];	/* Line: IDs in order of arrival, their number, time left of the place */
byte last;		/* Last */

/* The network. A client has two exchanges at a time: g of the goroutine that waits, holds,
 * releases or cancels, k of the keeper. */
#define NONE 0
#define SENT 1		/* the store has not processed it */
#define ANSWERED 2	/* the client has not read the answer */
#define FAILED 3	/* the client has not noticed */
#define PAUSE 4		/* the client has noticed, and tries again in the next step */
byte gx[N], gage[N], gtok[N], glast[N], gretry[N];	/* state, age; the answer: token, last token, Retry */
byte kx[N], kage[N], kid[N], khold[N], kans[N], ktok[N], kretry[N];	/* khold: the token renewed; 0: a place */
bool gslow[N], kslow[N];	/* it may take longer than a step */
byte skind[N], sid[N], stok[N], sage[N];	/* a request for which its client no longer waits; it may still arrive */
byte pushed[NI];		/* the token of a push under way */
bool late[NI];			/* it may take longer than a step */

/* kinds of requests */
#define ACQUIRE 1
#define RELEASE 2
#define CANCEL 3
#define RENEW 4
#define BREAK 5
#define DOWNGRADE 6
/* the fate of a renewal */
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
#define ALIVE 4		/* no Change: the grant is valid */

/* The clients. */
#define OUT 0		/* does not want the lock */
#define ASK 1		/* Lease.sendRequest: from the decision to ask until the answer has been processed (await.go) */
#define QUEUED 2		/* attempt.waitInQueue */
#define HELD 3		/* lease.go */
#define RELEASING 4		/* Lease.Release, Lease.releaseInBackground */
#define CANCELLING 5		/* Lease.cancelRequest */
byte phase[N], round[N];
byte proof[N];		/* age of wait.proof, or of the proof from which Lease.trusted counts */
byte token[N];		/* Lease.token */
byte early[N];		/* pushes up to this token are for ended grants: session.waits (redislock/wake.go) */
byte result[N], ntok[N], nage[N];	/* wait.results: state, token, age of the exchange that reported it */
byte retry[N];		/* time left of the timer of waitInQueue */
bool fired[N];		/* it has fired */
bool known[N];		/* it is in Client.waits: the keeper renews its place */
bool due[N];		/* the keeper renews next: Client.keep */
byte held[N];		/* steps since startLease */
bool paused[N];		/* the process is stopped, maybe for ever */
bool cut[N];		/* no message gets from it to the store, or back */

byte faults;		/* how many there have been */

/* Ghosts: only the properties look at them. */
byte top;		/* the largest token ever granted */
byte ended;		/* tokens up to this were broken, or lost by the store: no lease under them counts */
byte gone[NI];		/* steps since a request was given up */
byte waited;		/* steps that client 0 has waited since the last fault */
byte stalled;		/* steps since the last fault with a running waiter and no running holder */

#ifdef LIVENESS
bool ticked;		/* changes in every step of time */
#endif

#ifdef GUARD
byte seen;		/* the resource: the highest token it has seen */
bool used[N];		/* the client has begun to use it, once in each run */
byte using[N];		/* under this token */
bool reading[N];	/* it has read and may write */
bool behind[N];		/* another client has written since */
#endif

/* Scratch: 0 in every state. */
byte i, j, id, n, tok, why, turn;
byte kind, way, broken;
bool ok, went;

#define RUNS(c) (!paused[c])
#define WANTS(c) (phase[c] == ASK || phase[c] == QUEUED)
#define TRUSTS(c) (phase[c] == HELD && proof[c] < TRUST && token[c] > ended)
#define LIVES(x) (ht[x] && hl[x])

