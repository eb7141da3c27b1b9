package lab

import "time"

// Locks on PostgreSQL.

const postgresLocks = "CREATE TABLE locks (name text PRIMARY KEY, owner text, expires_at timestamptz)"

var postgresRows = []Row{
	{
		ID: "pg-delete-by-name", Store: Postgres, Title: "an upsert with an expiry, DELETE by name", job: stock, Class: "S1",
		Setup: []string{postgresLocks}, Lease: lease,
		Acquire: `INSERT INTO locks VALUES ('R', '{me}', now() + interval '10 s') ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at WHERE locks.expires_at < now() → 1 row`,
		Release: "DELETE FROM locks WHERE name = 'R'",
		Habit:   "a table of locks whose acquire is one careful statement, and whose release is the shortest one",
		Why:     "A outlives its lease, and B takes the row over. A's DELETE asks for the name only, so it removes B's row, and C gets the lock while B holds it.",
		How:     "a slow holder renews its lease; a release names the grant that it ends",
		Play: `
			A locks
			12s later: A is slow: a long query, a pause of its garbage collector, a machine that stood still
			B locks
			look
			A unlocks
			C locks
			B unlocks
			C unlocks`,
		sound: slowHolder,
	},
	{
		ID: "pg-clients-clocks", Store: Postgres, Title: "an upsert by the clients' own clocks", job: points, Class: "S1",
		Setup: []string{"CREATE TABLE locks (name text PRIMARY KEY, owner text, until bigint)"}, Lease: lease,
		Acquire: `INSERT INTO locks VALUES ('R', '{me}', {until}) ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until WHERE locks.until < {now} → 1 row`,
		Release: "DELETE FROM locks WHERE name = 'R' AND owner = '{me}'",
		Habit:   "the time as a parameter of the statement, so that tests can set it",
		Why:     "The times are those of the clients' clocks. B's clock is 30 seconds ahead. It believes that A's lease has expired, and takes the lock in the middle of A's lease.",
		How:     "no client's clock matters: the server alone decides when a lease expires",
		Play: `
			A remembers now: 50000
			A remembers until: 60000
			A locks
			B thinks: its clock is 30 seconds ahead
			B remembers now: 80000
			B remembers until: 90000
			B locks
			A unlocks
			B unlocks`,
		sound: rivalOfAnyClock,
	},
	{
		ID: "pg-check-insert", Store: Postgres, Title: "a check and an insert in one transaction, READ COMMITTED", job: gift,
		Class: "S1", Setup: []string{"CREATE TABLE locks (name text, owner text, expires_at timestamptz)"}, Lease: lease,
		Acquire: `BEGIN
			SELECT COUNT(*) FROM locks WHERE name = 'R' AND expires_at > now() → 0
			else: ROLLBACK
			at: between SELECT and INSERT
			INSERT INTO locks VALUES ('R', '{me}', now() + interval '10 s')
			COMMIT`,
		Release: "DELETE FROM locks WHERE name = 'R' AND owner = '{me}'",
		Habit:   "if (!repository.existsByName(name)) repository.save(lock), with @Transactional above it; no unique index, because old rows stay as a log",
		Why:     "A transaction does not make a check and an insert one step. Each transaction sees what was committed before its statement: none sees the other's row, and both insert.",
		How:     "one statement decides and writes, on a row that it has locked",
		Play: `
			A locks up to between SELECT and INSERT
			B locks
			A goes on
			look
			B unlocks
			A unlocks`,
		sound: rivalTries,
	},
	{
		ID: "pg-for-update-nothing", Store: Postgres, Title: "SELECT … FOR UPDATE of a row that is not there", job: stock,
		Class: "S1", Setup: []string{"CREATE TABLE locks (name text PRIMARY KEY)"},
		Acquire: "BEGIN\nSELECT name FROM locks WHERE name = 'R' FOR UPDATE",
		Release: "COMMIT",
		Habit:   "SELECT … FOR UPDATE as a mutex, with a row for each name that the first caller inserts",
		Why:     "FOR UPDATE locks the rows that it finds. It finds none, so it locks nothing, and B enters, too. Only the inserts exclude each other: B learns of A when both have done their work.",
		How:     "the statement that takes the lock creates the row if there is none",
		Play: `
			A locks
			look
			B locks
			A writes
			A> INSERT INTO locks VALUES ('R') → 1 row
			B writes
			B blocks> INSERT INTO locks VALUES ('R')
			A releases
			B gets → error: duplicate key
			B releases`,
		sound: rivalTries,
	},
	{
		ID: "pg-advisory-pooler", Store: Postgres, Title: "pg_advisory_lock behind a pooler", job: points, Class: "S1",
		Acquire: "SELECT pg_try_advisory_lock(7) → true", Release: "SELECT pg_advisory_unlock(7)",
		Habit: "advisory locks of sessions, and later PgBouncer in transaction mode in front of the server",
		Why:   "The lock belongs to the server's connection, which the pooler gives to the next client after each transaction. To the server B is A, which already has the lock, so B gets it once more.",
		How:   "a lock belongs to a request with an ID, and to no connection",
		Play: `
			A locks
			lab: two programs behind a pooler in transaction mode share a connection to the server. Here they are two clients on one connection
			B uses A's connection: A's transaction has ended, and the pooler gives the connection to the next client
			B locks
			look
			A unlocks
			B unlocks`,
		sound: rivalTries,
	},
	{
		ID: "pg-advisory-autocommit", Store: Postgres, Title: "pg_advisory_xact_lock without a transaction", job: gift,
		Class:   "S1",
		Acquire: "SELECT pg_try_advisory_xact_lock(7) → true", Release: "COMMIT",
		Habit: "the lock in a method whose @Transactional has no effect, or in a client library that commits each statement",
		Why:   "The lock ends with its transaction. Without BEGIN that is the statement which takes it: A has lost the lock before it reads the answer, and B gets it at once.",
		How:   "a lease outlives transactions, and ends by a release or in time",
		Play: `
			A locks
			look
			B locks
			A unlocks
			B unlocks`,
		sound: rivalTries,
	},
	{
		ID: "pg-idle-in-transaction", Store: Postgres, Title: "an open transaction as lock, and a limit for idle ones",
		job: stock, Class: "S2",
		Setup:   []string{"CREATE TABLE locks (name text PRIMARY KEY)", "INSERT INTO locks VALUES ('R')"},
		Lease:   3 * time.Second, // as the play sets it
		Acquire: "BEGIN\nSELECT name FROM locks WHERE name = 'R' FOR UPDATE → R", Release: "COMMIT",
		Habit: "a transaction that is open during the work; idle_in_transaction_session_timeout in the configuration of the server",
		Why:   "A sends no statement while it works, and the server ends transactions that are idle. B gets the lock. A learns of it from the answer to its COMMIT.",
		How:   "the library renews the lease while the program works, and cancels a context if it cannot",
		Play: `
			A> SET idle_in_transaction_session_timeout = '3s' → OK
			lab: so short that nobody has to wait long. Servers have minutes
			A locks
			A thinks: calls another service, and sends no statement meanwhile
			B asks
			B> BEGIN → OK
			lab: B waits for the row, in real time: nothing is skipped here
			B> SELECT name FROM locks WHERE name = 'R' FOR UPDATE → R
			lab: the server has ended A's transaction
			B holds
			A writes
			A releases
			B unlocks`,
		sound: slowHolder,
	},
	{
		ID: "pg-now-in-transaction", Store: Postgres, Title: "an expiry from now(), late in a transaction", job: points,
		Class: "S1", Setup: []string{postgresLocks, "INSERT INTO locks VALUES ('R', 'nobody', '2000-01-01')"},
		Lease:   3 * time.Second, // so much is slept
		Acquire: "UPDATE locks SET owner = '{me}', expires_at = now() + interval '3 s' WHERE name = 'R' AND expires_at < now() → 1 row",
		Release: "UPDATE locks SET expires_at = now() WHERE name = 'R' AND owner = '{me}'",
		Habit:   "the lock as one statement among others of a transaction; now(), CURRENT_TIMESTAMP",
		Why:     "now() is the time at which the transaction has begun. A's transaction is older than a lease when it asks for the lock. The lease has ended when A gets it, and B takes the lock at once.",
		How:     "the server's clock is read when the row is locked, and the client counts from the request on",
		Play: `
			A> BEGIN → OK
			A> SELECT pg_sleep(3.1)
			A locks
			A> COMMIT → OK
			look
			B locks
			A unlocks
			B unlocks`,
		sound: rivalTries,
	},
	{
		ID: "pg-permits-insert", Store: Postgres, Title: "INSERT … WHERE (SELECT COUNT(*) …) < 2 as semaphore", job: encoders,
		Class: "S5", Setup: []string{"CREATE TABLE permits (owner text PRIMARY KEY, expires_at timestamptz)"}, Lease: lease,
		Acquire: `BEGIN
			INSERT INTO permits SELECT '{me}', now() + interval '10 s' WHERE (SELECT COUNT(*) FROM permits WHERE expires_at > now()) < 2 → 1 row
			else: ROLLBACK
			at: before COMMIT
			COMMIT`,
		Release: "DELETE FROM permits WHERE owner = '{me}'",
		Habit:   "a count and an insert in one statement, because a statement is atomic",
		Why:     "A statement sees what was committed when it began. B and C count one permit in use, A's, and both insert. Nothing makes one of them wait: they write different rows.",
		How:     "every request locks the row of the name first, and counts in a statement after that",
		Play: `
			A locks
			B locks up to before COMMIT
			C locks up to before COMMIT
			B goes on
			C goes on
			look
			A releases
			B releases
			C releases`,
		sound: thirdTries,
	},
	{
		ID: "pg-hash-of-name", Store: Postgres, Title: "pg_advisory_lock(hashtext(name))", job: gift, Class: "L2",
		Acquire: "SELECT pg_try_advisory_lock(hashtext('order/156780')) → true",
		Release: "SELECT pg_advisory_unlock(hashtext('order/156780'))",
		Habit:   "hashtext, because an advisory lock is a number; migration tools with a hash of the database's name",
		Why:     "The hash has 32 bits. Among 77,000 names it is more likely than not that two have the same one. B is refused the order that nobody works on, because D works on another one.",
		How:     "a lock has its whole name",
		Play: `
			lab> SELECT hashtext('order/51570'), hashtext('order/156780')
			D> SELECT pg_try_advisory_lock(hashtext('order/51570')) → true
			D thinks: holds the lock of another order
			B is refused
			look`,
		sound: otherName,
	},
	{
		ID: "pg-token-unlocked-read", Store: Postgres, Title: "a fencing token that is read, and then written", job: stock,
		Class: "S3", Lease: lease,
		Setup: []string{
			"CREATE TABLE locks (name text PRIMARY KEY, owner text, token bigint, expires_at timestamptz)",
			"INSERT INTO locks VALUES ('R', 'nobody', 0, '2000-01-01')",
			"CREATE TABLE stock (id int PRIMARY KEY, pieces int, token bigint)", "INSERT INTO stock VALUES (7, 1, 0)",
		},
		Acquire: "UPDATE locks SET owner = '{me}', token = token + 1, expires_at = now() + interval '10 s' WHERE name = 'R' AND expires_at < now() → 1 row\nSELECT token FROM locks WHERE name = 'R' → as {token}",
		Release: "UPDATE locks SET expires_at = now() WHERE name = 'R' AND token = {token}",
		Habit:   "fencing as it is often explained: read the highest token, compare, and write",
		Why:     "The check and the write are two statements. A stands still between them, and meanwhile B, with a higher token, has sold the piece. A's write has no condition, so it is accepted.",
		How:     "the resource compares the token in the statement that writes, or reads it with FOR UPDATE",
		Play: `
			A locks
			A> SELECT token FROM stock WHERE id = 7 → 0
			A thinks: its token is 1, which is higher: it may write
			12s later: A stands still before its write
			B locks
			B> SELECT token FROM stock WHERE id = 7 → 0
			B> UPDATE stock SET pieces = pieces - 1, token = 2 WHERE id = 7 → 1 row
			B unlocks
			A> UPDATE stock SET pieces = pieces - 1, token = 1 WHERE id = 7 → 1 row
			look
			A unlocks`,
		sound: cutOff,
	},
}
