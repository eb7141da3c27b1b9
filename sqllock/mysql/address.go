package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// The address of a bell is its connection's number, at one server in one of its lives: another life gives
// the same numbers to other connections. A life is told by when it began, in seconds of the server's clock.
//
// hf_bell is an ordinary table, since rows of one in memory, which would end with the server, cannot be
// changed where changes are replicated: a replica that was started again does not have them, and stops.

// host is the server that a statement runs on. The copy of a server has another id.
const host = "CONCAT(@@hostname, ':', @@port, ':', @@server_id)"

// An address as a number: the second in which the server's life began, as far as it fits, and the connection.
const (
	connBits = 32
	lifeBits = 24
	address  = "(b.life MOD 16777216 * 4294967296 + b.conn)"
)

// sign marks the statements of bells in the server's list.
const sign = "/* hf_bell */"

// home is what a connection says of itself and its server.
type home struct {
	host, user string
	conn, life int64
}

// asker is a Querier, or a connection.
type asker func(ctx context.Context, text string) (*sql.Rows, error)

func asking(q sqllock.Querier) asker {
	return func(ctx context.Context, text string) (*sql.Rows, error) { return q.Query(ctx, text) }
}

func (d *dialect) homeOf(ctx context.Context, ask asker) (h home, err error) {
	var seconds, uptime int64
	var name string
	err = row(ctx, ask, d.Text("SELECT "+host+", CURRENT_USER(), CONNECTION_ID(), {now} DIV 1000000"), &h.host, &h.user, &h.conn, &seconds)
	if err == nil {
		err = row(ctx, ask, "SHOW GLOBAL STATUS LIKE 'Uptime'", &name, &uptime)
	}
	h.life = seconds - uptime // or one less, if the second passed between the two
	return h, err
}

// row reads the first row of a query, which must have one.
func row(ctx context.Context, ask asker, text string, dest ...any) (err error) {
	rows, err := ask(ctx, text)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if !rows.Next() {
		return errors.Join(rows.Err(), sql.ErrNoRows)
	}
	return rows.Scan(dest...)
}

// register makes c known as the bell of a Server, and removes what processes that died have left.
func (d *dialect) register(ctx context.Context, c *sql.Conn, server string) error {
	ask := func(ctx context.Context, text string) (*sql.Rows, error) { return c.QueryContext(ctx, text) }
	h, err := d.homeOf(ctx, ask)
	if err != nil {
		return err
	}
	if h.conn >= 1<<connBits {
		return fmt.Errorf("the server numbers connections beyond %d: %d", int64(1)<<connBits, h.conn)
	}
	exec := func(text string, args ...any) error {
		text, _ = d.Inline(text, args)
		_, err := c.ExecContext(ctx, text)
		return err
	}
	if err := exec("REPLACE INTO hf_bell (server, host, user, life, conn) VALUES (?, ?, ?, ?, ?)", server, h.host, h.user, h.life, h.conn); err != nil {
		return err
	}
	// Of the server's list everybody may see the connections of the own user. Whoever was here before c, and
	// is alive, is in it.
	text, _ := d.Inline("SELECT server, conn FROM hf_bell WHERE host = ? AND user = ? AND server <> ?"+
		" AND (life < ? OR conn < ? AND conn NOT IN (SELECT id FROM information_schema.processlist))",
		[]any{h.host, h.user, server, h.life - 1, h.conn})
	rows, err := c.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	type bellRow struct {
		server string
		conn   int64
	}
	var dead []bellRow
	for rows.Next() {
		var b bellRow
		err = errors.Join(err, rows.Scan(&b.server, &b.conn))
		dead = append(dead, b)
	}
	if err := errors.Join(err, rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, b := range dead {
		if err := exec("DELETE FROM hf_bell WHERE server = ? AND conn = ?", b.server, b.conn); err != nil {
			return err
		}
	}
	return nil
}

// lifeOf is the life of the server that q, which was connected at opened, is connected to.
func (d *dialect) lifeOf(ctx context.Context, q sqllock.Querier, opened time.Time) (int64, error) {
	d.mu.Lock()
	life, known := d.lives[opened]
	d.mu.Unlock()
	if known {
		return life, nil
	}
	h, err := d.homeOf(ctx, asking(q))
	if err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.lives) >= 16 { // of connections that have been replaced
		clear(d.lives)
	}
	d.lives[opened] = h.life
	return h.life, nil
}

// Wake implements [sqllock.Dialect].
func (d *dialect) Wake(ctx context.Context, q sqllock.Querier, opened time.Time, rings []sqllock.Ring) error {
	addresses := map[int64]bool{}
	var servers []any
	for _, r := range rings {
		switch {
		case r.Conn != 0:
			addresses[r.Conn] = true
		case r.Server != "":
			servers = append(servers, r.Server)
		}
	}
	if len(servers) > 0 {
		rows, err := q.Query(ctx, "SELECT "+address+" FROM hf_bell AS b WHERE b.server IN ("+marks(len(servers))+") AND b.host = "+host, servers...)
		if err != nil {
			return err
		}
		for rows.Next() {
			var a int64
			if err := rows.Scan(&a); err == nil {
				addresses[a] = true
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
	}
	if len(addresses) == 0 {
		return nil
	}
	life, err := d.lifeOf(ctx, q, opened)
	if err != nil {
		return err
	}
	for a := range addresses {
		if err := d.ring(ctx, q, life, a); lost(err) {
			return err
		} // an answer says that it is gone, or another user's: it looks by itself
	}
	return nil
}

// ring kills the statement of the bell at an address. If that seems to be of another life of the server,
// which the server's clock may only pretend when it was set, it must be seen to be a bell.
func (d *dialect) ring(ctx context.Context, q sqllock.Querier, life, a int64) error {
	conn := a & (1<<connBits - 1)
	if apart := (a>>connBits - life) & (1<<lifeBits - 1); apart > 1 && apart < 1<<lifeBits-1 {
		var n int
		err := row(ctx, asking(q), "SELECT 1 FROM information_schema.processlist WHERE id = "+strconv.FormatInt(conn, 10)+" AND info LIKE '%"+sign+"%'", &n)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return kill(ctx, q, conn)
}

// Announce implements [sqllock.Dialect]: nothing can be told before it is committed.
func (d *dialect) Announce(context.Context, sqllock.Querier, []sqllock.Ring) error { return nil }
