package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// The statements that do most of the work. An assignment of UPDATE and of ON DUPLICATE KEY UPDATE
// sees earlier assignments, unless sql_mode has SIMULTANEOUS_ASSIGNMENT. So they are in an order
// where that does not matter: a column is assigned after the last condition that reads it, or
// without changing that condition.
//
// The answer is one number, given by LAST_INSERT_ID(n). Affected rows mean different things with
// and without clientFoundRows.

// free: nobody holds, keeps or waits for the name. queue: the request may join the queue, as far as
// a statement can check: the name has a holder, no place in the queue has expired, and the request
// has no place. Otherwise Server reads the whole row.
const (
	free  = "(busy <= VALUES(at) AND waiting = 0 AND line = '' AND kind < 2 AND more = '')"
	queue = "(busy > VALUES(at) AND expires > VALUES(at) AND kept = 0 AND kind = 1 AND more = '' AND hid <> VALUES(hid)" +
		" AND (waiting > 0 OR line = '') AND (waiting = 0 OR due > VALUES(at)) AND LENGTH(line) < {room} AND LOCATE(CONCAT(x'0a', VALUES(hid), ' '), CONCAT(x'0a', line)) = 0)"
)

// For a request that joined, the number has how many are ahead and when the blocking lease ends, in
// microseconds.
const (
	joinedBit = 1 << 62
	aheadBits = 37
)

// joinText appends the inserted row's request to the queue. Arguments: tokens, minimum hold.
const joinText = `due = IF({queue}, IF(waiting = 0, VALUES(expires), LEAST(due, VALUES(expires))), due),
	waiting = IF({queue}, waiting + 1, waiting),
	line = IF({queue}, CONCAT(line, VALUES(hid), ' ', VALUES(hsession), ' 1 ', ?, ' ', ?, ' ', VALUES(since), ' ',
		VALUES(expires), ' ', VALUES(info), x'0a'), line)`

// Arguments: name, extra tokens, floor plus these, id, session, ttl, minimum hold, minimum hold,
// the longer of the two, info, extra tokens, floor plus these, tokens, minimum hold. Extra tokens
// are all but the first. (A server that prepares may not know the type of a comparison between
// arguments, so the caller compares them.) A new row's ver is the time, since the name may have had
// a row before, and someone may know its version. For the same reason all its tokens are at least
// the time, see record.mint.
const takeText = `INSERT INTO hf_lock
	(name, kind, lim, counter, token, ver, at, hid, hsession, since, expires, keep, busy, kept, info, waiting, due, line, more)
	VALUES (?, 1, 0, 0, LAST_INSERT_ID(GREATEST({now} + ?, ? + 1)), {now}, {now}, ?, ?, {now}, {now} + ?,
		IF(? > 0, {now} + ?, 0), {now} + ?, 0, ?, 0, 0, '', '')
	ON DUPLICATE KEY UPDATE
	token = IF({free}, LAST_INSERT_ID(GREATEST(token + 1 + ?, IF(token = 0, VALUES(token), VALUES(at)), ? + 1)), token + 0 * LAST_INSERT_ID(
		IF({queue}, 4611686018427387904 + waiting * 137438953472 + LEAST(expires - VALUES(at), 137438953471), 0))),
	ver = IF({free} OR {queue}, ver + 1, ver),
	at = IF({free} OR {queue}, GREATEST(at, VALUES(at)), at),
	lim = IF({free}, 0, lim),
	kind = IF({free}, 1, kind),
	counter = IF({free}, 0, counter),
	hid = IF({free}, VALUES(hid), hid),
	hsession = IF({free}, VALUES(hsession), hsession),
	since = IF({free}, VALUES(since), since),
	kept = IF({free}, 0, kept),
	info = IF({free}, VALUES(info), info),
	keep = IF({free}, VALUES(keep), keep),
	expires = IF({free}, VALUES(expires), expires),
	` + joinText + `,
	busy = IF({free}, VALUES(busy), busy)`

// takeTexts returns takeText for requests that do not wait, and for those that do.
func takeTexts() (try, wait string) {
	wait = strings.NewReplacer("{free}", free, "{queue}", queue).Replace(takeText)
	return strings.NewReplacer("{free}", free, "{queue}", "FALSE").Replace(takeText), wait
}

// The next two statements take a free name, or join a queue, and nothing else. takeText does both
// and also creates the row, but MariaDB needs more time to parse it than to run it.
//
// Arguments: extra tokens, extra tokens, floor plus these, id, session, info, minimum hold, minimum
// hold, ttl, the longer of the two, name.
const freeText = `UPDATE hf_lock SET
	token = LAST_INSERT_ID(GREATEST(token + 1 + ?, {now} + IF(token = 0, ?, 0), ? + 1)),
	ver = ver + 1, at = GREATEST(at, {now}), lim = 0, kind = 1, counter = 0, hid = ?, hsession = ?, since = {now}, kept = 0, info = ?,
	keep = IF(? > 0, {now} + ?, 0), expires = {now} + ?, busy = {now} + ?
	WHERE name = ? AND busy <= {now} AND waiting = 0 AND line = '' AND kind < 2 AND more = ''`

// Arguments: ttl, ttl, item up to the minimum hold, ttl, info, name, id, id.
const joinBlindText = `UPDATE hf_lock SET
	token = token + 0 * LAST_INSERT_ID(4611686018427387904 + waiting * 137438953472 + LEAST(expires - {now}, 137438953471)),
	ver = ver + 1, at = GREATEST(at, {now}), due = IF(waiting = 0, {now} + ?, LEAST(due, {now} + ?)), waiting = waiting + 1,
	line = CONCAT(line, ?, {now}, ' ', {now} + ?, ?)
	WHERE name = ? AND busy > {now} AND expires > {now} AND kept = 0 AND kind = 1 AND more = '' AND hid <> ?
	AND (waiting = 0) = (line = '') AND (waiting = 0 OR due > {now}) AND LENGTH(line) < {room} AND LOCATE(?, CONCAT(x'0a', line)) = 0`

// joinSeenText is joinBlindText for servers whose INSERT may return the row: it returns the holder.
// If there is no row, it creates one, and takes the name.
//
// Arguments: name, extra tokens, floor plus these, id, session, ttl, minimum hold, minimum hold,
// the longer of the two, info, tokens, minimum hold, id.
var joinSeenText = strings.NewReplacer("{queue}", queue).Replace(`INSERT INTO hf_lock
	(name, kind, lim, counter, token, ver, at, hid, hsession, since, expires, keep, busy, kept, info, waiting, due, line, more)
	VALUES (?, 1, 0, 0, GREATEST({now} + ?, ? + 1), {now}, {now}, ?, ?, {now}, {now} + ?,
		IF(? > 0, {now} + ?, 0), {now} + ?, 0, ?, 0, 0, '', '')
	ON DUPLICATE KEY UPDATE
	ver = IF({queue}, ver + 1, ver),
	at = IF({queue}, GREATEST(at, VALUES(at)), at),
	` + joinText + `
	RETURNING token, hid, since, expires, info, waiting, {now}, LOCATE(CONCAT(x'0a', ?, ' '), CONCAT(x'0a', line))`)

// Take implements [sqllock.Dialect].
func (d *dialect) Take(ctx context.Context, q sqllock.Querier, t *sqllock.Take) (got sqllock.Taken, err error) {
	room := func(text string) string { return strings.ReplaceAll(text, "{room}", strconv.FormatInt(t.MaxText, 10)) }
	longer, extra := max(t.TTL, t.MinHold), t.Tokens-1
	last := d.last.of(t.Name)
	switch was := last.Load(); {
	case was == wasFree:
		got, err = taken(q.Prepared().Exec(ctx, d.free, extra, extra, t.Floor+extra, t.ID, t.Session, t.Info, t.MinHold,
			t.MinHold, t.TTL, longer, []byte(t.Name)))
	case was != unknown && t.Wait && d.returns.Load():
		got, err = d.join(ctx, q, room(d.joinSeen), t)
	case was != unknown && t.Wait:
		got, err = taken(q.Prepared().Exec(ctx, room(d.joinBlind), t.TTL, t.TTL,
			fmt.Sprintf("%s %s 1 %d %d ", t.ID, t.Session, t.Tokens, t.MinHold), t.TTL,
			" "+t.Info+"\n", []byte(t.Name), t.ID, "\n"+t.ID+" "))
	}
	if err == nil && got.Token == 0 && !got.Queued {
		text := d.try
		if t.Wait {
			text = room(d.wait)
		}
		got, err = taken(q.Prepared().Exec(ctx, text, []byte(t.Name), extra, t.Floor+extra, t.ID, t.Session, t.TTL,
			t.MinHold, t.MinHold, longer, t.Info, extra, t.Floor+extra, t.Tokens, t.MinHold))
	}
	switch {
	case err != nil:
	case got.Token != 0:
		last.Store(wasTaken)
	default:
		last.Store(wasShared)
		if got.Queued && got.Holder == nil {
			return d.withHolder(ctx, q, t, got)
		}
	}
	return got, err
}

// Arguments: name, id of the request.
const holderText = "SELECT hid, token, since, expires, info, {now} FROM hf_lock WHERE name = ? AND hid <> ? AND kind = 1 AND kept = 0 AND expires > {now}"

// withHolder adds the holder, which does not fit in a statement's answer. It adds none if the lock
// was handed over meanwhile. It ignores errors: the request has its place in the queue.
func (d *dialect) withHolder(ctx context.Context, q sqllock.Querier, t *sqllock.Take, got sqllock.Taken) (
	sqllock.Taken, error) {
	ask := func(ctx context.Context, text string) (*sql.Rows, error) {
		return q.Prepared().Query(ctx, text, []byte(t.Name), t.ID)
	}
	var id, info string
	var token, since, expires, us int64
	if row(ctx, ask, d.holder, &id, &token, &since, &expires, &info, &us) != nil {
		return got, nil
	}
	return held(got, &driver.Holder{ID: id, Token: uint64(token)}, since, expires, us, info), nil
}

// held adds the holder.
func held(got sqllock.Taken, h *driver.Holder, since, expires, us int64, info string) sqllock.Taken {
	text, err := sqllock.Unescape(info)
	if err != nil { // reading the whole row gives the error
		return sqllock.Taken{}
	}
	micros := func(us int64) time.Duration { return max(0, time.Duration(us)*time.Microsecond) }
	h.Mode, h.N, h.Age, h.Left, h.Info = driver.Exclusive, 1, micros(us-since), micros(expires-us), text
	got.Holder = h
	return got
}

// join requests a name that has, or recently had, a holder.
func (d *dialect) join(ctx context.Context, q sqllock.Querier, text string, t *sqllock.Take) (
	got sqllock.Taken, err error) {
	longer, extra := max(t.TTL, t.MinHold), t.Tokens-1
	ask := func(ctx context.Context, text string) (*sql.Rows, error) {
		return q.Prepared().Query(ctx, text, []byte(t.Name), extra, t.Floor+extra, t.ID, t.Session, t.TTL, t.MinHold,
			t.MinHold, longer, t.Info, t.Tokens, t.MinHold, t.ID)
	}
	var id, info string
	var token, since, expires, us int64
	var waiting, place int
	switch err := row(ctx, ask, text, &token, &id, &since, &expires, &info, &waiting, &us, &place); {
	case err != nil:
		return got, err
	case id == t.ID && since == us: // otherwise it is an earlier grant, and Server must read the row
		got.Token = token
	case id != t.ID && place > 0:
		got.Queued, got.Ahead, got.Retry = true, waiting-1, max(time.Duration(expires-us), 1)*time.Microsecond
		return held(got, &driver.Holder{ID: id, Token: uint64(token)}, since, expires, us, info), nil
	}
	return got, nil
}

// taken decodes the answer.
func taken(res sql.Result, err error) (got sqllock.Taken, _ error) {
	if err != nil {
		return got, err
	}
	n, err := res.LastInsertId()
	switch {
	case err != nil || n == 0:
	case n < joinedBit:
		got.Token = n
	default:
		n -= joinedBit
		got.Queued = true
		got.Ahead = int(n >> aheadBits)
		got.Retry = time.Duration(n&(1<<aheadBits-1)) * time.Microsecond
	}
	return got, err
}

// Arguments: id, id, name, id, id. While the name has an exclusive holder, leaving the queue lets
// nobody in.
const leaveText = `UPDATE hf_lock SET
	ver = ver + 1,
	at = GREATEST(at, {now}),
	line = CONCAT(LEFT(line, LOCATE(CONCAT(x'0a', ?, ' '), CONCAT(x'0a', line)) - 1),
		SUBSTRING(line, LOCATE(x'0a', line, LOCATE(CONCAT(x'0a', ?, ' '), CONCAT(x'0a', line))) + 1)),
	due = IF(waiting <= 1, 0, due),
	waiting = waiting - 1
	WHERE name = ? AND hid <> ? AND hid <> '' AND expires > {now} AND kind = 1 AND (waiting = 0 OR due > {now})
	AND LOCATE(CONCAT(x'0a', ?, ' '), CONCAT(x'0a', line)) > 0`

// Leave implements [sqllock.Dialect].
func (d *dialect) Leave(ctx context.Context, q sqllock.Querier, name, id string) (bool, error) {
	res, err := q.Exec(ctx, d.leave, id, id, []byte(name), id, id)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// Renew implements [sqllock.Dialect].
func (d *dialect) Renew(ctx context.Context, q sqllock.Querier, names, ids []string, tokens []int64, ttl int64) (
	int, error) {
	args := []any{ttl, ttl}
	for _, name := range names {
		args = append(args, []byte(name))
	}
	for _, id := range ids {
		args = append(args, id)
	}
	for _, token := range tokens {
		args = append(args, token)
	}
	in := marks(len(names))
	// The statement changes every row that matches, so the count is the same with and without
	// clientFoundRows.
	res, err := q.Exec(ctx, d.Text(`UPDATE hf_lock FORCE INDEX (PRIMARY) SET expires = GREATEST(expires, {now} + ?), busy = GREATEST(busy, {now} + ?), ver = ver + 1, at = GREATEST(at, {now})
		WHERE name IN (`+in+`) AND hid IN (`+in+`) AND token IN (`+in+`) AND kept = 0 AND expires > {now}
		AND kind = 1 AND more = '' AND (waiting = 0) = (line = '')`), args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// Save implements [sqllock.Dialect]. The statement names the new rows first; otherwise the server
// might read, and lock, the whole table. The answer is how many were written.
func (d *dialect) Save(ctx context.Context, q sqllock.Querier, writes []sqllock.Write) ([]bool, error) {
	columns := sqllock.Columns()
	var set, parts []string
	var args []any
	for _, c := range columns {
		set = append(set, "l."+c+" = w."+c)
	}
	for i, w := range writes {
		part := "SELECT ?, ?" + strings.Repeat(", ?", len(columns))
		if i == 0 {
			part = "SELECT ? AS name, ? AS was, ? AS " + strings.Join(columns, ", ? AS ")
		}
		parts = append(parts, part)
		args = append(append(args, []byte(w.Name), w.Was), w.Values...)
	}
	res, err := q.Exec(ctx, "UPDATE ("+strings.Join(parts, " UNION ALL ")+
		") AS w STRAIGHT_JOIN hf_lock AS l ON l.name = w.name AND l.ver = w.was SET "+
		strings.Join(set, ", "), args...)
	if err != nil {
		return nil, err
	}
	saved := make([]bool, len(writes))
	switch n, err := res.RowsAffected(); {
	case err != nil:
		return nil, err
	case n == int64(len(writes)):
		for i := range saved {
			saved[i] = true
		}
	case n > 0:
		return nil, nil
	}
	return saved, nil
}
