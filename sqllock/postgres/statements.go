package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// The statements that do most of the work. Under READ COMMITTED, ON CONFLICT DO UPDATE and UPDATE
// wait for a row's lock and then use its latest version; these statements use no other row.

// durable makes a write wait for the disk where the server, the role or the pool have turned that
// off. A crash may lose a release, but no grant and no renewal.
const durable = "CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END"

// free: nobody holds, keeps or waits for the name. queue: the request may join the queue, as far as
// a statement can check: the name has a holder, no place in the queue has expired, and the request
// has no place. Otherwise Server reads the whole row.
const (
	free  = "(l.busy <= excluded.at AND l.waiting = 0 AND l.line = '' AND l.kind < 2 AND l.more = '')"
	queue = "(l.busy > excluded.at AND l.expires > excluded.at AND l.kept = 0 AND l.kind = 1 AND l.more = '' AND l.hid <> excluded.hid" +
		" AND (l.waiting = 0) = (l.line = '') AND (l.waiting = 0 OR l.due > excluded.at) AND length(l.line) < 4194304 AND strpos(E'\\n' || l.line, E'\\n' || excluded.hid || ' ') = 0)"

	// A name may have had a row before, so all tokens of a new one are at least the time: see
	// record.mint.
	//
	// $1 name, $2 id, $3 session, $4 ttl, $5 minimum hold, $6 info, $7 floor, $8 tokens
	takeText = `INSERT INTO hf_lock AS l
	(name, kind, lim, counter, token, ver, at, hid, hsession, since, expires, keep, busy, kept, info, waiting, due, line, more)
	SELECT $1, 1, 0, 0, greatest(us - 1, $7::bigint) + $8::bigint, us, us, $2, $3, us, us + $4::bigint,
		CASE WHEN $5::bigint > 0 THEN us + $5::bigint ELSE 0 END, us + greatest($4::bigint, $5::bigint), 0, $6, 0, 0, '', ''
	FROM (SELECT {now} AS us, {durable} AS waits, {bounded} AS bound) AS clock
	ON CONFLICT (name) DO UPDATE SET
	kind = 1, ver = l.ver + 1, at = greatest(l.at, excluded.at),
	lim = CASE WHEN {free} THEN 0 ELSE l.lim END,
	counter = CASE WHEN {free} THEN 0 ELSE l.counter END,
	token = CASE WHEN NOT {free} THEN l.token WHEN l.token = 0 THEN excluded.token
		ELSE greatest(l.token + $8::bigint, excluded.at, $7::bigint + $8::bigint) END,
	hid = CASE WHEN {free} THEN excluded.hid ELSE l.hid END,
	hsession = CASE WHEN {free} THEN excluded.hsession ELSE l.hsession END,
	since = CASE WHEN {free} THEN excluded.at ELSE l.since END,
	expires = CASE WHEN {free} THEN excluded.at + $4::bigint ELSE l.expires END,
	keep = CASE WHEN NOT {free} THEN l.keep WHEN $5::bigint > 0 THEN excluded.at + $5::bigint ELSE 0 END,
	busy = CASE WHEN {free} THEN excluded.at + greatest($4::bigint, $5::bigint) ELSE l.busy END,
	kept = CASE WHEN {free} THEN 0 ELSE l.kept END,
	info = CASE WHEN {free} THEN excluded.info ELSE l.info END`
	joinText = `,
	waiting = CASE WHEN {free} THEN 0 ELSE l.waiting + 1 END,
	due = CASE WHEN {free} THEN 0 WHEN l.waiting = 0 THEN excluded.at + $4::bigint ELSE least(l.due, excluded.at + $4::bigint) END,
	line = CASE WHEN {free} THEN '' ELSE l.line || excluded.hid || ' ' || excluded.hsession || ' 1 ' || $8::bigint || ' ' || $5::bigint || ' '
		|| excluded.at || ' ' || excluded.at + $4::bigint || ' ' || excluded.info || E'\n' END
	WHERE {free} OR {queue}`
	tryOnly   = "\n\tWHERE {free}"
	returning = "\n\tRETURNING l.token, l.hid, l.since, l.expires, l.info, l.waiting, {now}"
)

var (
	conditions = strings.NewReplacer("{free}", free, "{queue}", queue, "{durable}", durable, "{bounded}", bounded)
	tryText    = conditions.Replace(takeText + tryOnly + returning)
	waitText   = conditions.Replace(takeText + joinText + returning)
)

// Take implements [sqllock.Dialect].
func (d *dialect) Take(ctx context.Context, q sqllock.Querier, t *sqllock.Take) (got sqllock.Taken, err error) {
	text := d.try
	if t.Wait {
		text = d.wait
	}
	var token, since, expires, us int64
	var hid, info string
	var waiting int
	found, err := one(ctx, q, text, []any{[]byte(t.Name), t.ID, t.Session, t.TTL, t.MinHold, t.Info, t.Floor, t.Tokens},
		&token, &hid, &since, &expires, &info, &waiting, &us)
	switch {
	case err != nil || !found:
	case hid == t.ID:
		got.Token = token
	default:
		got.Queued, got.Ahead = true, waiting-1
		got.Retry = max(micros(expires-us), time.Microsecond)
		text, err := sqllock.Unescape(info)
		if err != nil { // reading the whole row gives the error
			return sqllock.Taken{}, nil
		}
		got.Holder = &driver.Holder{ID: hid, Mode: driver.Exclusive, N: 1, Token: uint64(token),
			Age: max(0, micros(us-since)), Left: got.Retry, Info: text}
	}
	return got, err
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// one runs a statement that returns one row or none.
func one(ctx context.Context, q sqllock.Querier, text string, args []any, dest ...any) (found bool, err error) {
	rows, err := q.Query(ctx, text, args...)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if rows.Next() {
		found = true
		err = rows.Scan(dest...)
	}
	return found, errors.Join(err, rows.Err())
}

// field is the k-th field of the queue's first item.
func field(k string) string { return "split_part(split_part(l.line, E'\\n', 1), ' ', " + k + ")" }

// Unlike all other changes, a release does not wait for the disk. If the server crashes and loses
// it, the lease expires. If the server loses a hand-over, the next holder still has its place in
// the queue. The place lasts as long as that holder may trust its lease, and nobody overtakes it.
// The holder's next call restores the hand-over. The token is the time, so it is not given out
// again: this statement does no hand-over where that is not the largest number (see record.mint).
//
// $1 name, $2 id, $3 token, $4 floor, $5 own server and those that it notifies, $6 window, $7 whether to
// notify others
var handText = strings.NewReplacer(
	"{id}", field("1"), "{session}", field("2"), "{mode}", field("3"),
	"{tokens}", "NULLIF("+field("4")+", '')::bigint", "{most}", strconv.Itoa(driver.MaxTokens),
	"{minhold}", "NULLIF("+field("5")+", '')::bigint",
	"{deadline}", "NULLIF("+field("7")+", '')::bigint", "{info}", field("8"), "{bounded}", bounded, "{sealed}",
	sealed("'hf_' || split_part(hsession, '.', 1)", "said"),
).Replace(`WITH ended AS (
	UPDATE hf_lock AS l SET
	ver = l.ver + 1, at = greatest(l.at, c.us), since = CASE WHEN l.waiting = 0 THEN 0 ELSE c.us END, kept = 0,
	token = CASE WHEN l.waiting = 0 THEN l.token ELSE c.us END,
	kind = CASE WHEN l.waiting = 0 THEN 0 ELSE 1 END,
	hid = {id}, hsession = {session}, info = {info},
	expires = CASE WHEN l.waiting = 0 THEN 0 ELSE {deadline} END,
	keep = CASE WHEN l.waiting = 0 OR {minhold} = 0 THEN 0 ELSE c.us + {minhold} END,
	busy = CASE WHEN l.waiting = 0 THEN 0 ELSE greatest({deadline}, c.us + {minhold}) END,
	waiting = greatest(l.waiting - 1, 0),
	due = CASE WHEN l.waiting <= 1 THEN 0 ELSE l.due END,
	line = CASE WHEN l.waiting = 0 THEN '' ELSE substr(l.line, strpos(l.line, E'\n') + 1) END
	FROM (SELECT {now} AS us, set_config('synchronous_commit', 'off', true) AS lazy, {bounded} AS bound) AS c
	WHERE l.name = $1 AND l.hid = $2 AND l.token = $3 AND l.kept = 0 AND l.expires > c.us AND l.keep <= c.us AND l.kind = 1 AND l.more = ''
	AND (l.waiting = 0) = (l.line = '')
	AND (l.waiting = 0 OR l.due > c.us AND {mode} = '1' AND {deadline} > c.us + $6::bigint
		AND {tokens} BETWEEN 1 AND {most} AND greatest(l.token, $4::bigint) + {tokens} <= c.us)
	RETURNING l.name, l.hid, l.hsession, l.token)
	SELECT hid, split_part(hsession, '.', 1), token, CASE WHEN $7::boolean AND hid <> '' AND split_part(hsession, '.', 1) <> ALL ($5::text[]) THEN
		pg_notify('hf_' || split_part(hsession, '.', 1), {sealed})::text END
	FROM ended, LATERAL (SELECT hid || ' ' || token || ' ' || encode(name, 'hex') AS said) AS news`)

// Hand implements [sqllock.Dialect].
func (d *dialect) Hand(ctx context.Context, q sqllock.Querier, h *sqllock.ReleaseReq) (got sqllock.Handed, err error) {
	var id, server string
	var token int64
	var notified sql.NullString
	own := append([]string{h.Server}, h.Near...)
	got.Done, err = one(ctx, q, d.hand, []any{[]byte(h.Name), h.ID, h.Token, h.Floor, array(own), h.Window,
		d.tells()}, &id, &server, &token, &notified)
	if slices.Contains(own, server) {
		got.To = &sqllock.Ring{Name: h.Name, Server: server, ID: id, Token: uint64(token)}
	}
	return got, err
}

// While the name has an exclusive holder, leaving the queue lets nobody in. $1 name, $2 id
var leaveText = strings.NewReplacer("{at}", `strpos(E'\n' || l.line, E'\n' || $2 || ' ')`, "{bounded}", bounded).Replace(`UPDATE hf_lock AS l SET
	ver = l.ver + 1, at = greatest(l.at, {now}),
	line = substr(l.line, 1, {at} - 1) || substr(l.line, {at} + strpos(substr(l.line, {at}), E'\n')),
	due = CASE WHEN l.waiting <= 1 THEN 0 ELSE l.due END, waiting = l.waiting - 1
	FROM (SELECT {bounded}) AS bound
	WHERE l.name = $1 AND l.hid <> $2 AND l.hid <> '' AND l.expires > {now} AND l.kind = 1 AND (l.waiting = 0 OR l.due > {now}) AND {at} > 0
	RETURNING ` + durable)

// Leave implements [sqllock.Dialect].
func (d *dialect) Leave(ctx context.Context, q sqllock.Querier, name, id string) (bool, error) {
	res, err := q.Exec(ctx, d.leave, []byte(name), id)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// The first statement makes the second find rows by key, whatever the server's statistics of the
// table. Both are one transaction, so the setting affects no other. They are not prepared, so the
// plan is current. Waiting statements hold no other row's lock, so the locking order does not
// matter.
//
// [1] ttl, [2] names, [3] ids, [4] tokens
var renewText = `SELECT set_config('enable_seqscan', 'off', true), ` + bounded + `, ` + durable + `;
	UPDATE hf_lock SET expires = greatest(expires, {now} + %[1]d), busy = greatest(busy, {now} + %[1]d), ver = ver + 1, at = greatest(at, {now})
	WHERE name = ANY (ARRAY[%[2]s]) AND hid = ANY ('{%[3]s}'::text[]) AND token = ANY ('{%[4]s}'::bigint[])
	AND kept = 0 AND expires > {now} AND kind = 1 AND more = '' AND (waiting = 0) = (line = '')`

var inArray = strings.NewReplacer("\\", "\\\\", "\"", "\\\"")

// array is an array as text, since not every driver accepts arrays.
func array(items []string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		_, _ = inArray.WriteString(&b, item)
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// Renew implements [sqllock.Dialect]. The IDs were accepted in requests, so they need no quotes.
func (d *dialect) Renew(ctx context.Context, q sqllock.Querier, names, ids []string, tokens []int64, ttl int64) (
	int, error) {
	keys, numbers := make([]string, len(names)), make([]string, len(tokens))
	for i, name := range names {
		keys[i], numbers[i] = fmt.Sprintf("decode('%x', 'hex')", name), strconv.FormatInt(tokens[i], 10)
	}
	res, err := q.Exec(ctx, fmt.Sprintf(d.renew, ttl, strings.Join(keys, ","), strings.Join(ids, ","),
		strings.Join(numbers, ",")))
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

func bytea(name string) string { return fmt.Sprintf(`\x%x`, name) }

// saveText writes rows whose version is unchanged since they were read, and notifies their new
// holders. It skips rows that others have locked, so it never waits for one row while it locks
// another.
//
// $1 names, $2 versions, $3 names of the notified, $4 channels, $5 payloads, and the columns.
func saveText() string {
	text := map[string]bool{"hid": true, "hsession": true, "info": true, "line": true, "more": true}
	var set, arrays []string
	for i, c := range sqllock.Columns() {
		kind := "bigint"
		if text[c] {
			kind = "text"
		}
		set, arrays = append(set, c+" = w."+c), append(arrays, fmt.Sprintf("$%d::%s[]", 6+i, kind))
	}
	return `WITH w AS (SELECT * FROM unnest($1::bytea[], $2::bigint[], ` + strings.Join(arrays, ", ") + `)
		AS w (name, was, ` + strings.Join(sqllock.Columns(), ", ") + `)),
	mine AS (SELECT l.name FROM hf_lock AS l JOIN w ON l.name = w.name AND l.ver = w.was ORDER BY l.name FOR UPDATE OF l SKIP LOCKED),
	done AS (UPDATE hf_lock AS l SET ` + strings.Join(set, ", ") + ` FROM w, mine WHERE l.name = w.name AND l.ver = w.was AND mine.name = l.name
		RETURNING l.name, ` + durable + `),
	told AS (SELECT count(pg_notify(t.channel, ` + sealed("t.channel", "t.news") + `)) FROM done JOIN unnest($3::bytea[], $4::text[], $5::text[]) AS t (name, channel, news) ON t.name = done.name)
	SELECT name, (SELECT * FROM told) FROM done`
}

// Save implements [sqllock.Dialect].
func (d *dialect) Save(ctx context.Context, q sqllock.Querier, writes []sqllock.Write) ([]bool, error) {
	at := make(map[string]int, len(writes))
	var names, versions, whom, channels, payloads []string
	columns := make([][]string, len(sqllock.Columns()))
	for i, w := range writes {
		at[w.Name] = i
		names, versions = append(names, bytea(w.Name)), append(versions, strconv.FormatInt(w.Was, 10))
		for k, v := range w.Values {
			columns[k] = append(columns[k], fmt.Sprint(v))
		}
		for _, r := range w.Rings {
			if !d.tells() {
				break
			}
			whom, channels, payloads = append(whom, bytea(w.Name)), append(channels, channel(r.Server)), append(payloads,
				sqllock.RingText(r))
		}
	}
	args := []any{array(names), array(versions), array(whom), array(channels), array(payloads)}
	for _, c := range columns {
		args = append(args, array(c))
	}
	rows, err := q.Query(ctx, d.save, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	saved := make([]bool, len(writes))
	for rows.Next() {
		var name []byte
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return nil, err
		}
		saved[at[string(name)]] = true
	}
	return saved, rows.Err()
}
