package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// A bell's address is its connection's ID and the run of the server: a restarted server gives the
// same IDs to other connections. A run is identified by its start, in seconds of the server's
// clock.
//
// hf_bell is an ordinary table. A MEMORY table would lose its rows with the server. A restarted
// replica would then lack rows that replicated statements change, and stop.

// host identifies the server that runs the statement. A copy of a server has another ID.
const host = "CONCAT(@@hostname, ':', @@port, ':', @@server_id)"

// An address as a number: the second in which the server's run began, as far as it fits, and the
// connection.
const (
	connBits = 32
	lifeBits = 24
	address  = "(b.life MOD 16777216 * 4294967296 + b.conn)"
)

// sign marks the statements of bells in the server's process list.
const sign = "/* hf_bell */"

// home describes a connection and its server.
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
	var seconds int64
	var uptime uint64 // wraps around if the clock was set back to before the server's start
	var name string
	err = row(ctx, ask, d.Text("SELECT "+host+", CURRENT_USER(), CONNECTION_ID(), {now} DIV 1000000"), &h.host, &h.user,
		&h.conn, &seconds)
	if err == nil {
		err = row(ctx, ask, "SHOW GLOBAL STATUS LIKE 'Uptime'", &name, &uptime)
	}
	h.life = seconds - int64(uptime) // or one less, if the second passed between the two statements
	return h, err
}

// row reads the first row of a query, which must exist.
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

// register records c as the bell of a Server, and deletes rows of dead processes.
func (d *dialect) register(ctx context.Context, c *sql.Conn, server string) error {
	ask := func(ctx context.Context, text string) (*sql.Rows, error) { return c.QueryContext(ctx, text) }
	h, err := d.homeOf(ctx, ask)
	if err != nil {
		return err
	}
	if h.conn >= 1<<connBits {
		return fmt.Errorf("the server's connection IDs exceed %d: %d", int64(1)<<connBits, h.conn)
	}
	exec := func(text string, args ...any) error {
		text, _ = d.Inline(text, args)
		_, err := c.ExecContext(ctx, text)
		return err
	}
	if err := exec("REPLACE INTO hf_bell (server, host, user, life, conn) VALUES (?, ?, ?, ?, ?)", server, h.host, h.user,
		h.life, h.conn); err != nil {
		return err
	}
	// Every user may see its own connections in the process list. Processes that connected before c
	// and are alive are in it.
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

// peers is a connection's knowledge: the server's run, and the addresses of other Servers.
type peers struct {
	life  int64
	conns map[uint32][]int64 // addresses, by the marks of their Servers
}

// mark stands for a Server in a statement's answer, which is a number.
func mark(server string) uint32 { return crc32.ChecksumIEEE([]byte(server)) }

// peersOf returns the peers of q, which was connected at opened.
func (d *dialect) peersOf(ctx context.Context, q sqllock.Querier, opened time.Time) (*peers, error) {
	d.mu.Lock()
	p := d.peers[opened]
	d.mu.Unlock()
	if p != nil {
		return p, nil
	}
	h, err := d.homeOf(ctx, asking(q))
	if err != nil {
		return nil, err
	}
	p = &peers{h.life, map[uint32][]int64{}}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.peers) >= 256 { // some connections have been replaced
		clear(d.peers)
	}
	d.peers[opened] = p
	return p, nil
}

// Wake implements [sqllock.Dialect]. It takes one command, unless q has not woken some Server
// before.
func (d *dialect) Wake(ctx context.Context, q sqllock.Querier, opened time.Time, rings []sqllock.Ring) error {
	var marks []uint32
	for _, r := range rings {
		if r.Server != "" {
			r.Mark = mark(r.Server)
		}
		marks = append(marks, r.Mark)
	}
	slices.Sort(marks)
	marks = slices.Compact(marks)
	if len(marks) == 0 {
		return nil
	}
	p, err := d.peersOf(ctx, q, opened)
	if err != nil {
		return err
	}
	for again := range 2 {
		var missing []any
		for _, m := range marks {
			d.mu.Lock()
			if again == 1 {
				delete(p.conns, m)
			}
			_, known := p.conns[m]
			d.mu.Unlock()
			if !known {
				missing = append(missing, int64(m))
			}
		}
		if err := d.lookUp(ctx, q, p, missing); err != nil {
			return err
		}
		var gone []uint32
		for _, m := range marks {
			d.mu.Lock()
			addresses := p.conns[m]
			d.mu.Unlock()
			for _, a := range addresses {
				woken, err := d.notify(ctx, q, p.life, a)
				if err != nil {
					return err
				}
				if !woken && !slices.Contains(missing, any(int64(m))) {
					gone = append(gone, m) // its connection may have changed
				}
			}
		}
		if marks = slices.Compact(gone); len(marks) == 0 {
			break
		}
	}
	return nil
}

// lookUp reads the addresses of Servers.
func (d *dialect) lookUp(ctx context.Context, q sqllock.Querier, p *peers, missing []any) error {
	if len(missing) == 0 {
		return nil
	}
	rows, err := q.Query(ctx, "SELECT CRC32(b.server), "+address+" FROM hf_bell AS b WHERE CRC32(b.server) IN ("+
		marks(len(missing))+") AND b.host = "+host, missing...)
	if err != nil {
		return err
	}
	found := map[uint32][]int64{}
	for rows.Next() {
		var m uint32
		var a int64
		if err = rows.Scan(&m, &a); err != nil {
			break
		}
		found[m] = append(found[m], a)
	}
	if err := errors.Join(err, rows.Err(), rows.Close()); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(p.conns) >= 4096 {
		clear(p.conns)
	}
	maps.Copy(p.conns, found)
	return nil
}

// notify kills the statement of the bell at an address, and reports whether the bell exists. If the
// address seems to be from another run of the server, notify first checks that the connection is a
// bell: a set clock has the same effect as another run.
func (d *dialect) notify(ctx context.Context, q sqllock.Querier, life, a int64) (bool, error) {
	conn := a & (1<<connBits - 1)
	if apart := (a>>connBits - life) & (1<<lifeBits - 1); apart > 1 && apart < 1<<lifeBits-1 {
		var n int
		err := row(ctx, asking(q), "SELECT 1 FROM information_schema.processlist WHERE id = "+strconv.FormatInt(conn, 10)+
			" AND info LIKE '%"+sign+"%'", &n)
		if err != nil {
			if errors.Is(err, sql.ErrNoRows) {
				err = nil
			}
			return false, err
		}
	}
	err := kill(ctx, q, conn)
	if lost(err) {
		return false, err
	}
	return err == nil, nil // otherwise it is gone, or belongs to another user, whose waiters look by themselves
}

// Announce implements [sqllock.Dialect]. It does nothing: MySQL cannot notify in a transaction.
func (d *dialect) Announce(context.Context, sqllock.Querier, []sqllock.Ring) error { return nil }
