package sqlite

// Identify a file as ours, and its version of the tables. Both are in the header of the main file,
// where reading them changes nothing.
const (
	sqliteAppID   = 0x686f6c64 // "hold"
	sqliteVersion = 1
)

// The tables. Times are nanoseconds of the store's clock. Names are blobs, so that they are
// compared byte for byte.
//
// An exclusive grant is always alone on its name, so it lives in the name's row: taking or
// releasing a free mutex is one statement. Other grants (shared ones, permits) are rows of hold,
// and the name's row has their number and sum.
//
// Most of a transaction's cost is pages to write, and each tree that it changes adds one. So there
// is no index for rare work: removeSession reads whole tables. lock.due, the earliest deadline in
// the queue or less, tells when to look for expired places.
//
// n of an exclusive place is how many tokens the request takes (R21).
//
// count is that of a latch, or 1 for a semaphore whose limit is set: the sweep keeps both.
//
// A row of lock stays while the name is unused, for its token. The sweep deletes old idle rows
// after their tokens have raised meta.floor, which every token exceeds.
//
// meta.ceiling has been synced to the disk, and no token reaches it: see raise.
var sqliteSchema = []string{
	`CREATE TABLE meta (
		one INTEGER PRIMARY KEY CHECK (one = 1),
		boot TEXT NOT NULL, floor INTEGER NOT NULL, ceiling INTEGER NOT NULL, swept BLOB NOT NULL)`,
	`CREATE TABLE session (
		id TEXT PRIMARY KEY, bell TEXT NOT NULL, file TEXT NOT NULL, inode INTEGER NOT NULL,
		opened INTEGER NOT NULL, info TEXT NOT NULL, ended INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID`,
	`CREATE TABLE lock (
		name BLOB PRIMARY KEY, kind INTEGER NOT NULL, lim INTEGER NOT NULL DEFAULT 0,
		count INTEGER NOT NULL DEFAULT 0, token INTEGER NOT NULL, seq INTEGER NOT NULL DEFAULT 0,
		holders INTEGER NOT NULL DEFAULT 0, used INTEGER NOT NULL DEFAULT 0, waiting INTEGER NOT NULL DEFAULT 0,
		due INTEGER NOT NULL DEFAULT 0, id TEXT NOT NULL DEFAULT '', session TEXT NOT NULL DEFAULT '', since INTEGER NOT NULL DEFAULT 0,
		expires INTEGER NOT NULL DEFAULT 0, keep INTEGER NOT NULL DEFAULT 0, kept INTEGER NOT NULL DEFAULT 0,
		info TEXT NOT NULL DEFAULT '') WITHOUT ROWID`,
	`CREATE TABLE hold (
		name BLOB NOT NULL, token INTEGER NOT NULL, id TEXT NOT NULL, session TEXT NOT NULL,
		mode INTEGER NOT NULL, n INTEGER NOT NULL, since INTEGER NOT NULL, expires INTEGER NOT NULL,
		keep INTEGER NOT NULL, kept INTEGER NOT NULL, info TEXT NOT NULL,
		PRIMARY KEY (name, token)) WITHOUT ROWID`,
	`CREATE INDEX hold_id ON hold (id)`,
	`CREATE INDEX hold_due ON hold (name, expires)`,
	`CREATE INDEX hold_session ON hold (session, name)`,
	`CREATE TABLE place (
		name BLOB NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, session TEXT NOT NULL,
		mode INTEGER NOT NULL, n INTEGER NOT NULL, since INTEGER NOT NULL, deadline INTEGER NOT NULL,
		minhold INTEGER NOT NULL, info TEXT NOT NULL,
		PRIMARY KEY (name, seq)) WITHOUT ROWID`,
	`CREATE INDEX place_id ON place (id)`,
	`CREATE TABLE counted (
		name BLOB NOT NULL, id TEXT NOT NULL, PRIMARY KEY (name, id)) WITHOUT ROWID`,
	`CREATE TABLE awaiting (
		name BLOB NOT NULL, id TEXT NOT NULL, session TEXT NOT NULL, PRIMARY KEY (name, id)) WITHOUT ROWID`,
	`CREATE INDEX awaiting_session ON awaiting (session)`,
}

// query is the number of a statement, prepared once per connection.
type query int

const (
	qBegin query = iota
	qCommit
	qRollback
	qRead
	qCeiling
	qTake
	qRelease
	qRenew
	qRenewShared
	qRow
	qPutRow
	qHoldsDue
	qDropHoldsDue
	qKeepHoldsDue
	qHoldByID
	qHoldByToken
	qFirstHold
	qAddHold
	qDropHold
	qKeepHold
	qExpireHold
	qReduceHold
	qAdoptHold
	qLive
	qNextDue
	qHolds
	qDropPlacesDue
	qNextPlaceDue
	qHead
	qPlaceByID
	qAddPlace
	qDropPlace
	qRenewPlace
	qAhead
	qLine
	qPlaces
	qStale
	qInUse
	qCounted
	qForgetCounted
	qAwait
	qDropAwait
	qDropAwaitID
	qAwaiting
	qSession
	qAddSession
	qMoveSession
	qStands
	qEndSession
	qDropSession
	qSessions
	qHolderSession
	qHoldSessions
	qSessionNames
	qRemoveHolds
	qRemovePlaces
	qRemoveAwaits
	qSwept
	qSetSwept
	qIdle
	qDropRow
	qDataVersion
	qStates
	qHoldStates
	qHasHistories
	qHistoryTable
	qHistoryIndex
	qHasEntry
	qLastEntry
	qUnmarkEntry
	qAddEntry
	qTrimHistory
	qOldHistories
	qDropHistory
	qHistory
	qOthers
	numQueries
)

// headColumns are those of a place and its session, either of which may be missing.
const headColumns = `ifnull(p.seq, 0), ifnull(p.id, ''), ifnull(p.session, ''), ifnull(p.mode, 0), ifnull(p.n, 0),
	ifnull(p.deadline, 0), ifnull(p.minhold, 0), ifnull(p.info, ''), ifnull(s.bell, ''), ifnull(s.file, ''), iif(typeof(s.inode) = 'integer', s.inode, -1)`

// unsound is true for a row of lock that no transaction of ours can have written, as far as a
// statement for many rows checks; see row.check. SQLite sorts texts after all numbers.
const unsound = `kind NOT IN (0, 1, 2, 3) OR token < 0 OR holders < 0 OR waiting < 0 OR
	typeof(token) || typeof(expires) || typeof(keep) || typeof(lim) || typeof(count) || typeof(holders) || typeof(waiting) <>
	'integerintegerintegerintegerintegerintegerinteger'`

// stays is true for the row of a name that is in use without holders and waiters: a latch, or a
// semaphore whose limit is set.
const stays = `(kind = 3 OR kind = 2 AND count > 0)`

// aTime is false for an expires that is a text.
const aTime = `expires <= 9223372036854775807`

const grantColumns = `token, id, session, mode, n, since, expires, keep, kept, info`

var queries = [numQueries]string{
	qBegin:    `BEGIN IMMEDIATE`,
	qCommit:   `COMMIT`,
	qRollback: `ROLLBACK`,
	qRead:     `BEGIN`,
	qCeiling:  `UPDATE meta SET ceiling = max(ceiling, ?, floor + ?)`,

	// The whole uncontended acquire. It does nothing unless the session exists, the name is free
	// and has no waiters, and the token is below the ceiling. ?9 is how many tokens the request
	// takes; see tx.grant.
	qTake: `INSERT INTO lock (name, kind, token, id, session, since, expires, keep, info)
		SELECT ?1, 1, t, ?2, ?8, ?3, ?4, ?5, ?6 FROM
			(SELECT max(?7, floor + 1) + ?9 - 1 AS t, ceiling AS c FROM meta)
		WHERE t < c AND EXISTS (SELECT 1 FROM session WHERE id = ?8 AND NOT ended)
		ON CONFLICT (name) DO UPDATE SET kind = 1, lim = 0,
			token = iif(token = 0, excluded.token, max(token + ?9, ?7, (SELECT floor FROM meta) + ?9)),
			id = excluded.id, session = excluded.session, since = excluded.since,
			expires = excluded.expires, keep = excluded.keep, kept = 0, info = excluded.info
		WHERE waiting = 0 AND holders = 0 AND NOT ` + stays + ` AND NOT (` + unsound + `) AND expires <= excluded.since
			AND keep <= excluded.since AND token + ?9 < (SELECT ceiling FROM meta)
		RETURNING token`,
	// The whole uncontended release of an exclusive grant without minimum hold.
	qRelease: `UPDATE lock SET kind = 0, id = '', session = '', expires = 0, keep = 0, info = ''
		WHERE name = ? AND id = ? AND token = ? AND kept = 0 AND waiting = 0 AND expires > ? AND keep <= ? AND NOT (` + unsound + `)`,
	qRenew: `UPDATE lock SET expires = max(?, min(expires, ?)) WHERE name = ? AND id = ? AND token = ? AND kept = 0 AND expires > ? AND NOT (` + unsound + `)`,
	qRenewShared: `UPDATE hold SET expires = max(?, min(expires, ?)) WHERE name = ? AND token = ? AND id = ? AND kept = 0 AND expires > ? AND ` + aTime + `
		AND n BETWEEN 1 AND 2147483647 AND EXISTS (SELECT 1 FROM lock AS l WHERE l.name = hold.name AND NOT (` + unsound + `))`,

	// A name with the first place in its queue and that waiter's address: all that a hand-over
	// needs. There is always one row.
	qRow: `SELECT m.floor, m.ceiling, ifnull(kind, 0), ifnull(lim, 0), ifnull(count, 0), ifnull(token, 0),
			ifnull(l.seq, 0), ifnull(holders, 0), ifnull(used, 0), ifnull(waiting, 0), ifnull(due, 0),
			ifnull(l.id, ''), ifnull(l.session, ''), ifnull(l.since, 0), ifnull(expires, 0), ifnull(keep, 0),
			ifnull(kept, 0), ifnull(l.info, ''), ` + headColumns + `
		FROM meta AS m LEFT JOIN lock AS l ON l.name = ?
		LEFT JOIN place AS p ON p.name = l.name AND p.seq = (SELECT min(seq) FROM place WHERE name = l.name)
		LEFT JOIN session AS s ON s.id = p.session`,
	qPutRow: `INSERT INTO lock (name, kind, lim, count, token, seq, holders, used, waiting, due,
			id, session, since, expires, keep, kept, info) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, lim = excluded.lim, count = excluded.count,
			token = excluded.token, seq = excluded.seq, holders = excluded.holders, used = excluded.used,
			waiting = excluded.waiting, due = excluded.due, id = excluded.id, session = excluded.session, since = excluded.since,
			expires = excluded.expires, keep = excluded.keep, kept = excluded.kept, info = excluded.info`,

	qHoldsDue:     `SELECT count(*), ifnull(sum(keep <= ?), 0), ifnull(sum((keep <= ?) * n), 0) FROM hold WHERE name = ? AND expires <= ?`,
	qDropHoldsDue: `DELETE FROM hold WHERE name = ? AND expires <= ? AND keep <= ?`,
	qKeepHoldsDue: `UPDATE hold SET kept = 1, expires = keep, session = '' WHERE name = ? AND expires <= ?`,
	qHoldByID:     `SELECT ` + grantColumns + ` FROM hold WHERE id = ? AND name = ? ORDER BY kept LIMIT 1`,
	qHoldByToken:  `SELECT ` + grantColumns + ` FROM hold WHERE name = ? AND token = ?`,
	qFirstHold:    `SELECT ` + grantColumns + ` FROM hold WHERE name = ? ORDER BY token LIMIT 1`,
	qAddHold:      `INSERT INTO hold (name, ` + grantColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
	qDropHold:     `DELETE FROM hold WHERE name = ? AND token = ?`,
	qKeepHold:     `UPDATE hold SET kept = 1, expires = ?, keep = ?, session = '' WHERE name = ? AND token = ?`,
	qExpireHold:   `UPDATE hold SET expires = max(?, min(expires, ?)) WHERE name = ? AND token = ?`,
	qReduceHold:   `UPDATE hold SET n = ? WHERE name = ? AND token = ?`,
	qAdoptHold:    `UPDATE hold SET id = ?, session = ?, expires = ?, info = ? WHERE name = ? AND token = ?`,
	qLive:         `SELECT 1 FROM hold WHERE name = ? AND kept = 0 LIMIT 1`,
	qNextDue:      `SELECT min(expires) FROM hold WHERE name = ?`,
	qHolds:        `SELECT ` + grantColumns + ` FROM hold WHERE name = ? ORDER BY token`,

	qDropPlacesDue: `DELETE FROM place WHERE name = ? AND deadline <= ?`,
	qNextPlaceDue:  `SELECT ifnull(min(deadline), 0) FROM place WHERE name = ?`,
	qHead: `SELECT ` + headColumns + ` FROM place AS p LEFT JOIN session AS s ON s.id = p.session
		WHERE p.name = ? ORDER BY p.seq LIMIT 1`,
	qPlaceByID: `SELECT seq FROM place WHERE id = ? AND name = ?`,
	qAddPlace: `INSERT INTO place (name, seq, id, session, mode, n, since, deadline, minhold, info)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
	qDropPlace:  `DELETE FROM place WHERE name = ? AND seq = ?`,
	qRenewPlace: `UPDATE place SET deadline = max(?, min(deadline, ?)) WHERE name = ? AND seq = ?`,
	qAhead:      `SELECT count(*) FROM place WHERE name = ? AND seq < ?`,
	qLine:       `SELECT seq FROM place WHERE name = ? ORDER BY seq`,
	qPlaces:     `SELECT id, mode, n, since, deadline, info FROM place WHERE name = ? ORDER BY seq LIMIT ?`,
	qStale:      `SELECT EXISTS (SELECT 1 FROM hold WHERE name = ? AND expires <= ?)`,
	qInUse: `SELECT name FROM lock WHERE name > ifnull(?, x'') AND name >= ifnull(?, x'')
		AND (id <> '' OR holders > 0 OR waiting > 0 OR ` + stays + ` OR ` + unsound + `)
		ORDER BY name LIMIT ?`,

	qCounted:       `INSERT INTO counted (name, id) VALUES (?, ?) ON CONFLICT DO NOTHING`,
	qForgetCounted: `DELETE FROM counted WHERE name = ?`,
	qAwait: `INSERT INTO awaiting (name, id, session) VALUES (?, ?, ?)
		ON CONFLICT DO UPDATE SET session = excluded.session`,
	qDropAwait:   `DELETE FROM awaiting WHERE name = ?`,
	qDropAwaitID: `DELETE FROM awaiting WHERE name = ? AND id = ?`,
	qAwaiting:    `SELECT id, session FROM awaiting WHERE name = ?`,

	qSession:     `SELECT bell, file, iif(typeof(inode) = 'integer', inode, -1) FROM session WHERE id = ?`,
	qAddSession:  `INSERT INTO session (id, bell, file, inode, opened, info) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
	qMoveSession: `UPDATE session SET bell = ?, file = ?, inode = ? WHERE id = ?`,
	qStands:      `SELECT 1 FROM session WHERE id = ? AND NOT ended`,
	qEndSession:  `UPDATE session SET ended = 1 WHERE id = ?`,
	qDropSession: `DELETE FROM session WHERE id = ?`,
	qSessions:    `SELECT id, bell, file, iif(typeof(inode) = 'integer', inode, -1) FROM session WHERE id > ? ORDER BY id LIMIT ?`,
	qHolderSession: `SELECT l.id, l.token, l.session, s.bell, s.file, iif(typeof(s.inode) = 'integer', s.inode, -1),
			ifnull((SELECT p.session FROM place AS p WHERE p.name = l.name ORDER BY p.seq LIMIT 1), '')
		FROM lock AS l JOIN session AS s ON s.id = l.session WHERE l.name = ? AND l.session <> ''`,
	qHoldSessions: `SELECT id FROM (SELECT id FROM session WHERE id > ? ORDER BY id LIMIT 256) AS s
		WHERE EXISTS (SELECT 1 FROM hold WHERE session = s.id AND name = ?) LIMIT 16`,
	qSessionNames: `SELECT name FROM lock WHERE session = ?1
		UNION SELECT name FROM hold WHERE session = ?1 AND kept = 0
		UNION SELECT name FROM place WHERE session = ?1`,
	qRemoveHolds:  `UPDATE hold SET expires = ? WHERE session = ? AND name = ? AND expires > ?`,
	qRemovePlaces: `DELETE FROM place WHERE session = ? AND name = ?`,
	qRemoveAwaits: `DELETE FROM awaiting WHERE session = ?`,

	qSwept:    `SELECT swept FROM meta`,
	qSetSwept: `UPDATE meta SET swept = ?, floor = max(floor, ?)`,
	qIdle: `SELECT name, iif(typeof(token) = 'integer', token, 0), NOT ` + stays + ` AND NOT (` + unsound + `) AND holders = 0 AND waiting = 0 AND expires <= ? AND keep <= ? AND since < ?
		FROM lock WHERE name > ? ORDER BY name LIMIT ?`,
	qDropRow: `DELETE FROM lock WHERE name = ?`,

	qDataVersion: `PRAGMA data_version`,
	qStates: `SELECT name, kind||' '||lim||' '||count||' '||token||' '||seq||' '||holders||' '||used||' '||waiting||' '||id||' '||kept
		FROM lock WHERE name >= ifnull(?, x'') AND name < ?`,
	qHoldStates: `SELECT name, token||' '||mode||' '||id||' '||kept
		FROM hold WHERE name >= ifnull(?, x'') AND name < ? ORDER BY name, token`,

	qHasHistories: `SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'history'`,
	qHistoryTable: `CREATE TABLE history (
		name BLOB NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, last INTEGER NOT NULL, entry BLOB NOT NULL,
		PRIMARY KEY (name, seq)) WITHOUT ROWID`,
	qHistoryIndex: `CREATE INDEX history_last ON history (at) WHERE last = 1`,
	qHasEntry:     `SELECT 1 FROM history WHERE name = ? AND entry = ? LIMIT 1`,
	qLastEntry:    `SELECT ifnull(max(seq), 0) FROM history WHERE name = ?`,
	qUnmarkEntry:  `UPDATE history SET last = 0 WHERE name = ?1 AND seq = (SELECT max(seq) FROM history WHERE name = ?1)`,
	qAddEntry:     `INSERT INTO history (name, seq, at, last, entry) VALUES (?, ?, ?, 1, ?)`,
	qTrimHistory: `DELETE FROM history WHERE name = ?1 AND seq <=
		(SELECT seq FROM history WHERE name = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)`,
	qOldHistories: `SELECT name FROM history AS h WHERE last = 1 AND at < ? AND seq = (SELECT max(seq) FROM history WHERE name = h.name)
		ORDER BY at LIMIT ?`,
	qDropHistory: `DELETE FROM history WHERE name = ?`,
	qHistory:     `SELECT at, entry FROM history WHERE name = ? ORDER BY seq DESC LIMIT ?`,
	qOthers:      `SELECT 1 FROM lock WHERE name <> ? LIMIT 1`,
}
