package lab

// Locks on SQLite. A file has no network, so the programs that use holdfast only wait and try.

var sqliteRows = []Row{
	{
		ID: "lite-busy-retry", Store: SQLite, Title: "BEGIN, read, write, and again after SQLITE_BUSY", job: stock,
		Class: "S1",
		Setup: []string{"CREATE TABLE locks (name TEXT PRIMARY KEY, owner TEXT)", "INSERT INTO locks VALUES ('R', 'nobody')"},
		Acquire: `BEGIN
			SELECT owner FROM locks WHERE name = 'R' → nobody
			else: ROLLBACK
			UPDATE locks SET owner = '{me}' WHERE name = 'R' → 1 row
			COMMIT`,
		Release: "UPDATE locks SET owner = 'nobody' WHERE name = 'R' AND owner = '{me}'",
		Habit:   "a helper that runs a statement again when it returns SQLITE_BUSY",
		Why:     "BEGIN locks nothing before the first write. A has read that the lock is free when B takes it. SQLite refuses A's write, because A has read an old state. The helper repeats the write alone.",
		How:     "BEGIN IMMEDIATE: a transaction that will write has the file before it reads",
		Play: `
			A asks
			A> BEGIN → OK
			A> SELECT owner FROM locks WHERE name = 'R' → nobody
			B locks
			A> UPDATE locks SET owner = 'A' WHERE name = 'R' → error: database is locked
			A thinks: busy: ends the transaction, and writes again
			A> ROLLBACK → OK
			A> UPDATE locks SET owner = 'A' WHERE name = 'R' → 1 row
			A holds
			look
			B unlocks
			A unlocks`,
		sound: rivalTries,
	},
	{
		ID: "lite-or-replace", Store: SQLite, Title: "INSERT OR REPLACE", job: gift, Class: "S1",
		Setup: []string{"CREATE TABLE locks (name TEXT PRIMARY KEY, owner TEXT, expires_at REAL)"}, Lease: lease,
		Acquire: "INSERT OR REPLACE INTO locks VALUES ('R', '{me}', unixepoch('subsec') + 10) → 1 row",
		Release: "DELETE FROM locks WHERE name = 'R' AND owner = '{me}'",
		Habit:   "INSERT OR REPLACE (in MySQL REPLACE INTO) as the way to write a row that may exist",
		Why:     "The statement never fails: it removes the row that is in its way. B removes A's row, and has the lock as well.",
		How:     "a request that finds a valid lease is refused, or waits",
		Play: `
			A locks
			2s later: A works
			look
			B locks
			look
			A unlocks
			B unlocks`,
		sound: rivalTries,
	},
	{
		ID: "lite-text-times", Store: SQLite, Title: "times as text, in two spellings", job: points, Class: "S1",
		Setup: []string{"CREATE TABLE locks (name TEXT PRIMARY KEY, owner TEXT, until TEXT)"}, Lease: lease,
		Acquire: "INSERT INTO locks VALUES ('R', '{me}', datetime('{now}', '+10 seconds')) ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until WHERE locks.until < '{now}' → 1 row",
		Release: "DELETE FROM locks WHERE name = 'R' AND owner = '{me}'",
		Habit:   "datetime() writes the expiry, and the program compares it with its own time as 2026-03-01T12:00:00Z",
		Why:     "SQLite has no type for times: it compares texts. datetime() has a space between date and time, and the program has a T, which is greater. So every lease of the same day has expired.",
		How:     "times are numbers, and one clock writes and compares them",
		Play: `
			A remembers now: 2026-03-01T12:00:00Z
			A locks
			look
			B remembers now: 2026-03-01T12:00:02Z
			B locks
			look
			A unlocks
			B unlocks`,
		sound: rivalTries,
	},
}
