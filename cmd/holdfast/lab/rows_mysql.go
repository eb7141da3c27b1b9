package lab

import "time"

// Locks on MySQL and MariaDB.

var mySQLRows = []Row{
	{
		ID: "my-insert-forever", Store: MySQL, Title: "a row with a unique name, without expiry", job: stock, Class: "L1",
		Setup: []string{"CREATE TABLE locks (name varchar(64) PRIMARY KEY, owner varchar(64))"}, Lease: lease,
		Acquire: "INSERT INTO locks VALUES ('R', '{me}') → 1 row",
		Release: "DELETE FROM locks WHERE name = 'R' AND owner = '{me}'",
		Habit:   "the unique index as a mutex: whoever can insert the row has the lock",
		Why:     "A crashes with the lock. Its row was committed, and nothing says how long it counts. No client ever gets the lock again.",
		How:     "the row has an expiry by the server's clock: after a crash the lock becomes free within a TTL",
		Play: `
			A locks
			A crashes: at work
			B waits
			1m later: B tries again and again
			B tries again in vain
			1h later: B tries again and again
			B tries again in vain
			look
			left over: 1`,
		sound: holderDies,
	},
	{
		ID: "my-affected-rows", Store: MySQL, Title: "ON DUPLICATE KEY UPDATE, decided by affected rows", job: points,
		Class: "S1", Lease: lease,
		Setup:   []string{"CREATE TABLE locks (name varchar(64) PRIMARY KEY, owner varchar(64), expires_at datetime(6))"},
		Acquire: "INSERT INTO locks VALUES ('R', '{me}', NOW(6) + INTERVAL 10 SECOND) ON DUPLICATE KEY UPDATE owner = IF(expires_at < NOW(6), VALUES(owner), owner), expires_at = IF(expires_at < NOW(6), VALUES(expires_at), expires_at) → >=1",
		Release: "DELETE FROM locks WHERE name = 'R' AND owner = '{me}'",
		Habit:   "if (statement.executeUpdate() > 0), written with a client library that counts changed rows and run with one that counts found rows, as that of Java does (clientFoundRows, useAffectedRows=false)",
		Why:     "B's statement leaves A's row as it is. A client that counts changed rows gets 0, and knows. One that counts found rows gets 1: B believes that it has the lock.",
		How:     "the answer has the owner's ID and the token; affected rows decide nothing",
		Play: `
			A locks
			B locks
			look
			A unlocks
			B unlocks`,
		sound: rivalTries,
	},
	{
		ID: "my-get-lock-unlock", Store: MySQL, Title: "GET_LOCK and RELEASE_LOCK on a pool", job: gift, Class: "L2",
		Lease:   lease, // nobody expects the lock after that
		Acquire: "SELECT GET_LOCK('R', 0) → 1", Release: "/2> SELECT RELEASE_LOCK('R')",
		Habit: "db.Query(\"SELECT GET_LOCK(…)\") and db.Query(\"SELECT RELEASE_LOCK(…)\") on a pool of connections",
		Why:   "The lock belongs to a connection. The pool gives A another one for the release, which releases nothing. The first one stays open in the pool, with the lock, and everybody is refused.",
		How:   "a release names the grant, and any connection may send it",
		Play: `
			A locks
			A unlocks
			A thinks: nobody looks at the 0
			1m later: the first connection is in A's pool
			look
			B waits
			1h later: B tries again and again
			B tries again in vain
			left over: 1`,
		sound: rivalTries,
	},
	{
		ID: "my-get-lock-again", Store: MySQL, Title: "GET_LOCK twice on one connection of a pool", job: stock, Class: "S1",
		Acquire: "SELECT GET_LOCK('R', 0) → 1", Release: "SELECT RELEASE_LOCK('R')",
		Habit: "GET_LOCK on a pool; requests of one process",
		Why:   "A's connection is free again after the statement. The pool gives it to B, another request of the process. GET_LOCK counts: the connection has the lock already, and B gets 1, too.",
		How:   "a lock belongs to a request with an ID, and to no connection",
		Play: `
			A locks
			B uses A's connection: the statement is over, so the pool gives its connection to the next request
			B locks
			A unlocks
			look
			B unlocks
			look`,
		sound: rivalTries,
	},
	{
		ID: "my-get-lock-idle", Store: MySQL, Title: "GET_LOCK, and a limit for idle connections", job: points, Class: "S2",
		Lease:   3 * time.Second, // as the play sets it
		Acquire: "SELECT GET_LOCK('R', 0) → 1", Release: "SELECT RELEASE_LOCK('R')",
		Habit: "GET_LOCK on a connection that does nothing else; wait_timeout, or a proxy's limit, in between",
		Why:   "A's work needs no database, so its connection is idle, and the server closes it after wait_timeout. The lock ends with the connection. B gets it, and A learns of it from the answer to its release.",
		How:   "the library renews the lease while the program works, and cancels a context if it cannot",
		Play: `
			A> SET wait_timeout = 3 → OK
			lab: so short that nobody has to wait long. Servers have minutes or hours
			A locks
			A thinks: works on something else
			B asks
			lab: B waits for the lock, in real time: nothing is skipped here
			B> SELECT GET_LOCK('R', 50) → 1
			lab: the server has closed A's connection
			B holds
			A writes
			A releases
			B unlocks`,
		sound: slowHolder,
	},
	{
		ID: "my-for-update-gap", Store: MySQL, Title: "SELECT … FOR UPDATE of a row that is not there", job: gift,
		Class: "S1", Setup: []string{"CREATE TABLE locks (name varchar(64) PRIMARY KEY)"},
		Acquire: "BEGIN\nSELECT name FROM locks WHERE name = 'R' FOR UPDATE",
		Release: "COMMIT",
		Habit:   "SELECT … FOR UPDATE as a mutex, \"which locks the gap if there is no row\"",
		Why:     "InnoDB locks the gap in which the row would be. But locks of a gap do not exclude each other: they only stop inserts. A and B both have it, and both work. Then both insert: a deadlock.",
		How:     "the statement that takes the lock creates the row if there is none",
		Play: `
			A locks
			B locks
			A writes
			A blocks> INSERT INTO locks VALUES ('R')
			B writes
			B> INSERT INTO locks VALUES ('R') → error: deadlock
			A gets → 1 row
			A releases
			B releases`,
		sound: rivalTries,
	},
	{
		ID: "my-for-update-autocommit", Store: MySQL, Title: "SELECT … FOR UPDATE without a transaction", job: stock,
		Class:   "S1",
		Setup:   []string{"CREATE TABLE locks (name varchar(64) PRIMARY KEY)", "INSERT INTO locks VALUES ('R')"},
		Acquire: "SELECT name FROM locks WHERE name = 'R' FOR UPDATE → R", Release: "COMMIT",
		Habit: "the statement in a method whose @Transactional has no effect, or before START TRANSACTION",
		Why:   "With autocommit each statement is a transaction. The lock of the row ends with the SELECT, before A reads its answer. B does not even have to wait.",
		How:   "a lease outlives transactions, and ends by a release or in time",
		Play: `
			A locks
			B locks
			A unlocks
			B unlocks`,
		sound: rivalTries,
	},
	{
		ID: "my-ddl-commits", Store: MySQL, Title: "SELECT … FOR UPDATE, and TRUNCATE in the transaction", job: points,
		Class: "S1",
		Setup: []string{"CREATE TABLE locks (name varchar(64) PRIMARY KEY)", "INSERT INTO locks VALUES ('R')",
			"CREATE TABLE staging (id int)"},
		Acquire: "BEGIN\nSELECT name FROM locks WHERE name = 'R' FOR UPDATE → R", Release: "COMMIT",
		Habit: "a nightly job that locks a row, empties a table, and fills it",
		Why:   "TRUNCATE, like every statement that changes a table, commits the transaction first, and says nothing. The lock of the row ends with it: B enters while A still works.",
		How:   "the lease is no part of the program's transactions",
		Play: `
			A locks
			A> TRUNCATE staging → OK
			B locks
			A unlocks
			B unlocks`,
		sound: rivalTries,
	},
	{
		ID: "my-permits-two-steps", Store: MySQL, Title: "a counter of permits: SELECT, then UPDATE", job: encoders,
		Class: "S5", Lease: lease,
		Setup:   []string{"CREATE TABLE permits (name varchar(64) PRIMARY KEY, used int)", "INSERT INTO permits VALUES ('R', 0)"},
		Acquire: "SELECT used FROM permits WHERE name = 'R' → <2\nat: between SELECT and UPDATE\nUPDATE permits SET used = used + 1 WHERE name = 'R'",
		Release: "UPDATE permits SET used = used - 1 WHERE name = 'R'",
		Habit:   "if (permits.getUsed() < limit) { permits.increment(); … }",
		Why:     "B and C read that one permit of two is in use, A's. Both add one to the counter. It is 3 now, and three clients work where two may.",
		How:     "the store counts and grants in one step",
		Play: `
			A locks
			B locks up to between SELECT and UPDATE
			C locks up to between SELECT and UPDATE
			B goes on
			C goes on
			look
			A releases
			B releases
			C releases`,
		sound: thirdTries,
	},
}
