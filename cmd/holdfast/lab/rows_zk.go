package lab

// Locks on ZooKeeper as they are written by hand. The first rows are queues of ephemeral, sequential
// nodes in a folder; the last are single nodes. A lease is a session.

// zkFolder creates the folder of a queue.
var zkFolder = []string{"create /R"}

var zkQueueRows = []Row{
	{
		ID: "zk-node-per-try", Store: ZooKeeper, Setup: zkFolder, job: stock, Class: "L2", Lease: lease,
		Title:   "a new node for each try",
		Acquire: "create -s -e /R/n- {me} → as {node}\nls /R → [{node}…",
		Release: "delete /R/{node} → OK",
		Habit:   "for !tryLock() { sleep }, where each tryLock creates a node, and no refused one deletes its own",
		Why:     "B's first try leaves a node. A releases, and B tries again with a second node. The first of the queue is B's own older node now, and B waits for itself as long as its session lives.",
		How:     "a try of a busy lock leaves no node, and a waiter keeps the one that it has",
		Play: `
			A locks
			B waits
			A unlocks
			B tries again in vain
			lab: the first node belongs to B itself, and B does not know it
			1m later: B sleeps and tries again
			B tries again in vain
			look
			C is refused
			1h later: B tries again
			B tries again in vain
			left over: 0`,
		sound: waiterNext,
	},
	{
		ID: "zk-one-folder", Store: ZooKeeper, Setup: zkFolder, job: stock, Class: "L2", Lease: lease,
		Title:   "one folder for the locks of all names",
		Acquire: "create -s -e /R/stock- {me} → as {node}\nls /R → [{node}…",
		Release: "delete /R/{node} → OK",
		Habit:   "one folder /locks, with the name of the lock in the name of the node",
		Why:     "Every child of the folder counts as a waiter of the same lock. A has the lock of the orders, which nobody else wants. B wants the stock, which nobody has, and waits for A.",
		How:     "each name has a folder of its own, and children with other names do not count",
		Play: `
			A> create -s -e /R/orders- A → orders-0000000000
			A> ls /R → [orders-0000000000]
			A thinks: holds the lock of the orders, for an hour
			B waits
			1m later: nobody has the lock of the stock
			B> ls /R → [orders-0000000000 stock-0000000001]
			1h later: nobody has the lock of the stock
			A> delete /R/orders-0000000000 → OK
			B> ls /R → [stock-0000000001]
			B holds
			B unlocks`,
		sound: otherName,
	},
	{
		ID: "zk-watch-late", Store: ZooKeeper, Setup: zkFolder, job: points, Class: "L2", Lease: lease,
		Title:   "a watch that is set after the look",
		Acquire: "create -s -e /R/n- {me} → as {node}\nls /R → [{node}…",
		Release: "delete /R/{node} → OK",
		Habit:   "zk.getChildren(folder), then zk.exists(predecessor, watcher), whose result nobody looks at",
		Why:     "A's node goes between B's look and B's watch. The server says so in its answer to the watch: no node. B only waits for an event, and a node that has gone does not go again. B sleeps while it is the first of the queue.",
		How:     "a waiter looks at the answer to its watch: if the node has gone, it looks at the queue again",
		Play: `
			A locks
			B waits
			B thinks: the node before its own is n-0000000000
			A unlocks
			B> watch /R/n-0000000000 → error: no node
			B thinks: does not look at the answer: its watch is set
			B blocks> await /R/n-0000000000
			look
			1m later: the lock is free
			C waits
			1h later: the lock is free
			B still waits
			left over: 0`,
		sound: lookAndWatch,
	},
	{
		ID: "zk-next-is-owner", Store: ZooKeeper, Setup: zkFolder, job: gift, Class: "S1", Lease: lease,
		Title:   "the node before has gone, so the lock is mine",
		Acquire: "create -s -e /R/n- {me} → as {node}\nls /R → [{node}…",
		Release: "delete /R/{node} → OK",
		Habit:   "a waiter watches the node before its own, and enters when that one goes, without another look at the queue",
		Why:     "The node before C's is B's, which only waits. B gives up and deletes it. C takes that for a release, and enters beside A.",
		How:     "a waiter that is woken looks at the queue, unless the holder itself has announced its release",
		Play: `
			A locks
			B waits
			C waits
			C> watch /R/n-0000000001 → exists
			C blocks> await /R/n-0000000001
			B gives up: its caller does not want to wait any longer
			B> delete /R/n-0000000001 → OK
			C gets → deleted
			C thinks: the node before has gone: it is its turn
			C holds
			look
			A unlocks
			C unlocks`,
		sound: waiterLeaves,
	},
	{
		ID: "zk-sort-by-name", Store: ZooKeeper, Setup: zkFolder, job: points, Class: "S1", Lease: lease,
		Title:   "a queue that is sorted by whole names",
		Acquire: "create -s -e /R/{host}- {me} → as {node}\nls /R → [{node}…",
		Release: "delete /R/{node} → OK",
		Habit:   "sorted(children)[0], while the names begin with a host or a random ID: kazoo and Curator on one path",
		Why:     "The server's number is at the end of the name, and the list is sorted by its beginning. A comes later, and sorts before B, which holds the lock. So A is the first, and enters.",
		How:     "only the number decides, whatever stands before it",
		Play: `
			B remembers host: web-2
			A remembers host: web-1
			B locks
			A locks
			look
			B unlocks
			A unlocks`,
		sound: rivalTries,
	},
	{
		ID: "zk-create-repeated", Store: ZooKeeper, Setup: zkFolder, job: gift, Class: "L2", Lease: lease,
		Title:   "a create that is sent again after a lost answer",
		Acquire: "create -s -e /R/n- {me} → as {node}\nls /R → [{node}…",
		Release: "delete /R/{node} → OK",
		Habit:   "on ConnectionLoss, create again; without the random ID in the name that Curator calls protection",
		Why:     "A's create takes effect, and its answer is lost. A creates another node, and finds one before it, which nobody owns. It is A's own, and stays as long as A's session lives: for A, and for everybody.",
		How:     "a node's name has a random ID; after a lost answer the library looks for the node under it",
		Play: `
			A asks
			A loses an answer: its connection breaks, and it connects again in the same session
			A> create -s -e /R/n- A → no answer
			A> create -s -e /R/n- A → n-0000000001
			A> ls /R → [n-0000000000 n-0000000001]
			A thinks: somebody is before it
			A> watch /R/n-0000000000 → exists
			A blocks> await /R/n-0000000000
			B waits
			1m later: the session of A lives, and with it the node that nobody owns
			look
			1h later: the same
			A still waits
			left over: 0`,
		sound: lostCreate,
	},
	{
		ID: "zk-token-sequence", Store: ZooKeeper, job: stock, Class: "S4", Lease: lease, Token: true,
		Title:   "the number of the node as fencing token",
		Acquire: "create /R → OK | error: node exists\ncreate -s -e /R/n- {me} → as {token}\nls /R → [{token}…",
		Release: "delete /R/{token} → OK",
		Habit:   "the sequence number is the token; a job deletes empty folders, or they are containers",
		Why:     "The server counts the numbers of a folder. The folder is deleted while it is empty, and the next one begins at 0 again. So B's token is smaller than A's, which has lost the lock. The resource refuses B and accepts A.",
		How:     "the token is the number of the transaction that created the node: it grows over all folders",
		Play: `
			D> create /R → OK
			lab: three clients have had the lock before
			D> create -s -e /R/n- D → n-0000000000
			D> delete /R/n-0000000000 → OK
			D> create -s -e /R/n- D → n-0000000001
			D> delete /R/n-0000000001 → OK
			D> create -s -e /R/n- D → n-0000000002
			D> delete /R/n-0000000002 → OK
			A locks
			A is cut off: its process stands still
			12s later: its session is over
			D> ls /R → []
			D thinks: the job for empty folders
			D> delete /R → OK
			D> create /R → OK
			D> create -s -e /R/n- D → n-0000000000
			D> delete /R/n-0000000000 → OK
			B locks
			A is back: its process goes on, as if nothing had happened
			A unlocks
			B releases`,
		sound: newFolder,
	},
}

var zkNodeRows = []Row{
	{
		ID: "zk-watch-once", Store: ZooKeeper, job: stock, Class: "L2", Lease: lease,
		Title:   "a watch that has been used up",
		Acquire: "create -e /R {me} → OK",
		Release: "delete /R → OK",
		Habit:   "a watcher that ignores all events but NodeDeleted, and is not set again",
		Why:     "A watch brings one event. A writes its progress into its node, and B's watch is used up by that. B ignores the event, and waits for the next one, which never comes.",
		How:     "each event leads to another look, with a new watch",
		Play: `
			A locks
			B waits
			B> watch /R → exists
			A> set /R half-done → OK
			B> await /R → changed
			B thinks: not a deletion: waits for the next event
			B blocks> await /R
			A unlocks
			look
			1m later: the lock is free
			1h later: the lock is free
			B still waits
			left over: 0`,
		sound: waiterNext,
	},
	{
		ID: "zk-finally-delete", Store: ZooKeeper, job: points, Class: "S1", Lease: lease,
		Title:   "delete in finally, without having the lock",
		Acquire: "create -e /R {me} → OK",
		Release: "delete /R → OK",
		Habit:   "try { if (create()) { … } } finally { delete(path, -1) }",
		Why:     "A delete asks nobody whose node it is. B was refused, and its finally deletes A's node. C gets the lock while A holds it.",
		How:     "each holder has a node of its own, whose name no other client uses",
		Play: `
			A locks
			B is refused
			B thinks: returns, and its finally runs
			B> delete /R → OK
			C locks
			A unlocks
			C unlocks`,
		sound: rivalTries,
	},
	{
		ID: "zk-next-session", Store: ZooKeeper, job: gift, Class: "S1", Lease: lease,
		Title:   "a request of the last session, sent in the next",
		Acquire: "create -e /R {me} → OK",
		Release: "delete /R",
		Habit:   "client libraries that open another session when one has expired, and send there what was in their queue",
		Why:     "A is cut off, and releases. The request waits in the library's queue. A's session expires, and B gets the lock. A's library reaches the server again, with a new session, and sends the delete: B's node goes.",
		How:     "a request belongs to its session: if that is over, it is not sent, and the caller is told",
		Play: `
			A locks
			A is cut off: the network fails
			A unlocks
			A thinks: its library keeps the request until it reaches a server
			12s later: A's session is over
			B locks
			A thinks: its library has a new session
			A/2> delete /R → OK
			C locks
			B unlocks
			C unlocks`,
		sound: releaseCutOff,
	},
	{
		ID: "zk-own-name", Store: ZooKeeper, job: gift, Class: "S1", Lease: lease,
		Title:   "the node has my name, so the lock is mine",
		Acquire: "create -e /R web-1 → error: node exists\nget /R → web-1",
		Release: "delete /R → OK",
		Habit:   "the host's name as data, and after a restart: if data == myName { return true }",
		Why:     "A's program dies and starts again within the session timeout. It finds the node with its own name, and enters. But the node belongs to the old session. That ends, the node goes, and C gets the lock while the new program works.",
		How:     "a node counts only for the session that has created it",
		Play: `
			A asks
			A> create -e /R web-1 → OK
			A holds
			A crashes: its supervisor starts it again, as B
			6s later: the server still waits for the session of A
			B locks
			B thinks: "the lock is mine already"
			6s later: the session of A is over, and its node goes
			C asks
			C> create -e /R web-2 → OK
			C holds
			B unlocks
			C unlocks`,
		sound: holderDies,
	},
	{
		ID: "zk-expired-unnoticed", Store: ZooKeeper, job: stock, Class: "S2", Lease: lease,
		Title:   "an expired session, which its client does not know of",
		Acquire: "create -e /R {me} → OK",
		Release: "delete /R → OK",
		Habit:   "no code for SUSPENDED and LOST: \"ZooKeeper deletes the node if I die\"",
		Why:     "A stands still for longer than its session lasts. The server deletes its node, and B gets the lock. A learns it with its next request, and its next step is the write, not a request.",
		How:     "the holder's own clock ends the lease before the server's does; its context is cancelled, and the token decides",
		Play: `
			A locks
			A is cut off: its process stands still
			12s later: its session is over
			B locks
			A is back: its process goes on, as if nothing had happened
			A unlocks
			B unlocks`,
		sound: cutOff,
	},
	{
		ID: "zk-persistent", Store: ZooKeeper, job: points, Class: "L1", Lease: lease,
		Title:   "a persistent node as lock",
		Acquire: "create /R {me} → OK",
		Release: "delete /R → OK",
		Habit:   "create(path), which makes a persistent node in kazoo, Curator and zkCli unless one says otherwise",
		Why:     "A dies. A persistent node belongs to no session, so nothing ever deletes it. B never gets the lock.",
		How:     "the nodes of holders and waiters are ephemeral",
		Play: `
			A locks
			A crashes: at work
			B waits
			12s later: A's session is over, and its node stays
			B tries again in vain
			1h later: B tries again
			B tries again in vain
			look
			left over: 1`,
		sound: holderDies,
	},
}
