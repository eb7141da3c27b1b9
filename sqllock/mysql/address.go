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
	var seconds int64
	var uptime uint64 // below zero where the clock was set back to before the server's start, as it prints it
	var name string
	err = row(ctx, ask, d.Text("SELECT "+host+", CURRENT_USER(), CONNECTION_ID(), {now} DIV 1000000"), &h.host, &h.user, &h.conn, &seconds)
	if err == nil {
		err = row(ctx, ask, "SHOW GLOBAL STATUS LIKE 'Uptime'", &name, &uptime)
	}
	h.life = seconds - int64(uptime) // or one less, if the second passed between the two
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

// peers is what is known on a connection of its server: which life it is in, and where others can be woken.
type peers struct {
	life  int64
	bells map[uint32][]int64 // addresses, by the marks of their Servers
}

// mark stands for a Server in what a statement answers, which is a number.
func mark(server string) uint32 { return crc32.ChecksumIEEE([]byte(server)) }

// peersOf is what is known on q, which was connected at opened.
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
	if len(d.peers) >= 256 { // of connections that have been replaced
		clear(d.peers)
	}
	d.peers[opened] = p
	return p, nil
}

// Wake implements [sqllock.Dialect]. It is one command, unless somebody has not been woken from here yet.
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
				delete(p.bells, m)
			}
			_, known := p.bells[m]
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
			addresses := p.bells[m]
			d.mu.Unlock()
			for _, a := range addresses {
				rung, err := d.ring(ctx, q, p.life, a)
				if err != nil {
					return err
				}
				if !rung && !slices.Contains(missing, any(int64(m))) {
					gone = append(gone, m) // it has another connection now, perhaps
				}
			}
		}
		if marks = slices.Compact(gone); len(marks) == 0 {
			break
		}
	}
	return nil
}

// lookUp asks for the addresses of Servers.
func (d *dialect) lookUp(ctx context.Context, q sqllock.Querier, p *peers, missing []any) error {
	if len(missing) == 0 {
		return nil
	}
	rows, err := q.Query(ctx, "SELECT CRC32(b.server), "+address+" FROM hf_bell AS b WHERE CRC32(b.server) IN ("+marks(len(missing))+") AND b.host = "+host, missing...)
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
	if len(p.bells) >= 4096 {
		clear(p.bells)
	}
	maps.Copy(p.bells, found)
	return nil
}

// ring kills the statement of the bell at an address, and reports whether that is there. If it seems to be of another
// life of the server, which the server's clock may only pretend when it was set, it must be seen to be a bell.
func (d *dialect) ring(ctx context.Context, q sqllock.Querier, life, a int64) (bool, error) {
	conn := a & (1<<connBits - 1)
	if apart := (a>>connBits - life) & (1<<lifeBits - 1); apart > 1 && apart < 1<<lifeBits-1 {
		var n int
		err := row(ctx, asking(q), "SELECT 1 FROM information_schema.processlist WHERE id = "+strconv.FormatInt(conn, 10)+" AND info LIKE '%"+sign+"%'", &n)
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
	return err == nil, nil // else it is gone, or another user's, who looks by himself
}

// Announce implements [sqllock.Dialect]: nothing can be told before it is committed.
func (d *dialect) Announce(context.Context, sqllock.Querier, []sqllock.Ring) error { return nil }
