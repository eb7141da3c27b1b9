package mysql

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// A release is one of two statements: without waiters, or with waiters.
//
// Arguments: name, id, token.
const freeingText = `UPDATE hf_lock SET
	ver = ver + 1, at = GREATEST(at, {now}), kind = 0, hid = '', hsession = '', since = 0, expires = 0, keep = 0, busy = 0, info = '', due = 0
	WHERE name = ? AND hid = ? AND token = ? AND kept = 0 AND expires > {now} AND keep <= {now} AND kind = 1 AND more = '' AND waiting = 0 AND line = ''`

const handedOn = 1 << 32

// fields replaces the fields of the queue's first item. line is the column.
func fields(line string) *strings.Replacer {
	field := func(k int) string { // but not the last
		return "SUBSTRING_INDEX(SUBSTRING_INDEX(" + line + ", ' ', " + strconv.Itoa(k) + "), ' ', -1)"
	}
	number := func(k int) string { return "CAST(" + field(k) + " AS SIGNED)" }
	return strings.NewReplacer("{id}", field(1), "{session}", field(2), "{mode}", field(3), "{tokens}", number(4),
		"{minhold}", number(5), "{deadline}", number(7), "{most}", strconv.Itoa(driver.MaxTokens),
		"{info}", "SUBSTRING_INDEX(SUBSTRING_INDEX("+line+", x'0a', 1), ' ', -1)", "{l}", strings.TrimSuffix(line, "line"))
}

// What a hand-over sets, and when it is possible. Arguments of both: floor; name, id, token, window.
const (
	handingSet = `token = GREATEST({l}token + {tokens}, {now}, ? + {tokens}){mark},
	ver = {l}ver + 1, at = GREATEST({l}at, {now}), hid = {id}, hsession = {session}, since = {now}, expires = {deadline},
	keep = IF({minhold} = 0, 0, {now} + {minhold}), busy = GREATEST({deadline}, {now} + {minhold}), info = {info},
	due = IF({l}waiting = 1, 0, {l}due), line = SUBSTRING({l}line, LOCATE(x'0a', {l}line) + 1), waiting = {l}waiting - 1`
	handingIf = `{l}name = ? AND {l}hid = ? AND {l}token = ? AND {l}kept = 0 AND {l}expires > {now} AND {l}keep <= {now} AND {l}more = ''
	AND {l}kind = 1 AND {l}waiting > 0 AND {l}due > {now} AND {mode} = '1' AND {tokens} BETWEEN 1 AND {most} AND {deadline} > {now} + ?`
)

// The answer is the mark of the next holder's Server, plus handedOn.
//
// Arguments: floor, name, id, token, window.
var handingText = fields("line").Replace("UPDATE hf_lock SET " + strings.ReplaceAll(handingSet, "{mark}",
	" + 0 * LAST_INSERT_ID(4294967296 + CRC32(SUBSTRING_INDEX({session}, '.', 1)))") + " WHERE " + handingIf)

// handingSeenText is handingText for servers whose INSERT may return the row: it returns the next
// holder. It never inserts: the row that it selects exists, and is locked before it is read.
//
// Arguments: name, id, token, window, floor.
var handingSeenText = `INSERT INTO hf_lock
	(name, kind, lim, counter, token, ver, at, hid, hsession, since, expires, keep, busy, kept, info, waiting, due, line, more)
	SELECT w.name, 0, 0, 0, 0, 0, 0, '', '', 0, 0, 0, 0, 0, '', 0, 0, '', '' FROM hf_lock AS w WHERE ` +
	fields("w.line").Replace(handingIf) + ` FOR UPDATE
	ON DUPLICATE KEY UPDATE ` + fields("hf_lock.line").Replace(strings.ReplaceAll(handingSet, "{mark}", "")) + `
	RETURNING token, hid, hsession`

// Hand implements [sqllock.Dialect].
func (d *dialect) Hand(ctx context.Context, q sqllock.Querier, h *sqllock.ReleaseReq) (got sqllock.Handed, err error) {
	last := d.last.of(h.Name)
	free := func() {
		var res sql.Result
		if res, err = q.Prepared().Exec(ctx, d.freeing, []byte(h.Name), h.ID, h.Token); err != nil {
			return
		}
		var n int64
		if n, err = res.RowsAffected(); n > 0 {
			got.Done = true
			last.Store(wasFree)
		}
	}
	alone := last.Load() != wasShared
	if alone {
		free()
	}
	if err == nil && !got.Done {
		if got, err = d.handOver(ctx, q, h); got.Done {
			last.Store(wasShared)
		}
	}
	if err == nil && !got.Done && !alone {
		free()
	}
	return got, err
}

// handOver hands the lock to the first in the queue.
func (d *dialect) handOver(ctx context.Context, q sqllock.Querier, h *sqllock.ReleaseReq) (
	got sqllock.Handed, err error) {
	if !d.shows.Load() {
		return d.handOverUnseen(ctx, q, h)
	}
	ask := func(ctx context.Context, text string) (*sql.Rows, error) {
		return q.Prepared().Query(ctx, text, []byte(h.Name), h.ID, h.Token, h.Window, h.Floor)
	}
	to := &sqllock.Ring{Name: h.Name}
	switch err := row(ctx, ask, d.handingSeen, &to.Token, &to.ID, &to.Session); {
	case errors.Is(err, sql.ErrNoRows):
		return got, nil
	case answer(err) == syntaxError: // the server is older than those that we know
		d.shows.Store(false)
		return d.handOverUnseen(ctx, q, h)
	case err != nil:
		return got, err
	}
	to.Server, to.Session, _ = strings.Cut(to.Session, ".")
	return sqllock.Handed{Done: true, To: to}, nil
}

const syntaxError = 1064

// handOverUnseen hands the lock over with a statement that does not return the next holder.
func (d *dialect) handOverUnseen(ctx context.Context, q sqllock.Querier, h *sqllock.ReleaseReq) (
	got sqllock.Handed, err error) {
	got, err = handed(q.Prepared().Exec(ctx, d.handing, h.Floor, []byte(h.Name), h.ID, h.Token, h.Window))
	if got.Done {
		got.To.Name = h.Name
		if got.To.Mark == mark(h.Server) {
			got.To.Server = h.Server
		} else if at := slices.IndexFunc(h.Near, func(id string) bool { return mark(id) == got.To.Mark }); at >= 0 {
			got.To.Server, got.To.ID = h.Near[at], sqllock.AnyID
		}
	}
	return got, err
}

// handed decodes the answer.
func handed(res sql.Result, err error) (got sqllock.Handed, _ error) {
	if err != nil {
		return got, err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return got, err
	}
	n, err := res.LastInsertId()
	return sqllock.Handed{Done: err == nil, To: &sqllock.Ring{Mark: uint32(n - handedOn)}}, err
}
