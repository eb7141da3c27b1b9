package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// bell wakes processes with KILL QUERY. Each process that waits has one connection that sleeps in
// a statement, and its number in hf_bell; numbers are not given twice in one life of a
// server, and the rows of hf_bell do not outlive it.
//
// KILL of a connection that does not sleep just now does nothing. So the statement that sleeps looks
// first whether anything has been granted to those who wait.
type bell struct {
	d    *dialect
	cfg  sqllock.BellConfig
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
	wait chan struct{} // somebody waits
}

// patience is how long a sleeping statement may be overdue before its connection is given up.
const patience = 3 * time.Second

// OpenBell implements [sqllock.Dialect].
func (d *dialect) OpenBell(ctx context.Context, cfg sqllock.BellConfig) (sqllock.Bell, string, error) {
	b := &bell{d: d, cfg: cfg, wait: make(chan struct{}, 1)}
	c, err := b.connect(ctx)
	if err != nil {
		return nil, "", err
	}
	if err := b.try(ctx, c); err != nil {
		_ = c.Close()
		if lost(err) || ctx.Err() != nil {
			return nil, "", err
		}
		return nil, "waking a connection with KILL QUERY does not work here: " + err.Error(), nil
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.wg.Go(func() { b.sleep(c) })
	return b, "", nil
}

// connect takes a connection and makes it known.
func (b *bell) connect(ctx context.Context) (*sql.Conn, error) {
	c, err := b.cfg.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	text, _ := b.d.Inline("REPLACE INTO hf_bell (server, host, conn) VALUES (?, CONCAT(@@hostname, ':', @@port), CONNECTION_ID())", []any{b.cfg.Server})
	if _, err := c.ExecContext(ctx, text); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// try wakes c once, from another connection, and returns why it did not work. Nothing is killed that
// has not been seen to be c: a proxy may number connections in its own way.
func (b *bell) try(ctx context.Context, c *sql.Conn) error {
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, 4*limit)
	defer cancel()
	mark := "hf_" + strings.ToLower(rand.Text())
	woken := make(chan error, 1)
	began := time.Now()
	go func() {
		var n int
		err := c.QueryRowContext(ctx, fmt.Sprintf("SELECT SLEEP(%d) AS %s", limit/time.Second, mark)).Scan(&n)
		woken <- err
	}()
	rung := b.cfg.Keep(ctx, func(q sqllock.Querier, _ time.Time) error {
		for time.Since(began) < limit/2 {
			var conn int64
			rows, err := q.Query(ctx, "SELECT p.id FROM information_schema.processlist AS p JOIN hf_bell AS b ON b.conn = p.id"+
				" WHERE b.server = ? AND p.info LIKE '%SLEEP%"+mark+"'", b.cfg.Server)
			if err != nil {
				return err
			}
			for rows.Next() {
				err = errors.Join(err, rows.Scan(&conn))
			}
			if err := errors.Join(err, rows.Err(), rows.Close()); err != nil {
				return err
			}
			if conn != 0 {
				return kill(ctx, q, conn)
			}
			time.Sleep(time.Millisecond) // the server tells nobody when a statement has begun
		}
		return errors.New("the connection's number is not that of the server's list: is there a proxy between?")
	})
	err := <-woken
	if rung != nil {
		return rung
	}
	if lost(err) {
		return err
	}
	if time.Since(began) >= limit {
		return errors.New("the connection slept on")
	}
	return nil
}

func kill(ctx context.Context, q sqllock.Querier, conn int64) error {
	_, err := q.Exec(ctx, "KILL QUERY ?", conn)
	return err
}

// sleep is the life of the connection that is woken.
func (b *bell) sleep(c *sql.Conn) {
	defer func() {
		if c == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		text, _ := b.d.Inline("DELETE FROM hf_bell WHERE server = ?", []any{b.cfg.Server})
		_, _ = c.ExecContext(ctx, text) // else it is an address of nobody
		_ = c.Close()
	}()
	failed := 0
	for b.ctx.Err() == nil {
		pending := b.cfg.Waiting()
		if len(pending) == 0 {
			select {
			case <-b.wait:
			case <-b.ctx.Done():
			}
			continue
		}
		if c == nil {
			var err error
			if c, err = b.connect(b.ctx); err != nil {
				c = nil
				failed++
				b.pause(failed)
				continue
			}
			failed = 0
		} else {
			ctx, cancel := context.WithTimeout(b.ctx, b.cfg.Sleep+patience)
			var n int
			err := c.QueryRowContext(ctx, b.statement(pending)).Scan(&n)
			cancel()
			var said *mysql.MySQLError
			if err != nil && !errors.As(err, &said) {
				_ = c.Close()
				c = nil
			} else if said != nil && said.Number != interrupted {
				failed++
				b.pause(failed)
			}
		}
		_ = b.cfg.Look(b.ctx) // else the next
	}
}

const interrupted = 1317

// pause keeps a server that cannot serve from being asked all the time.
func (b *bell) pause(failed int) {
	t := time.NewTimer(min(5*time.Millisecond<<min(failed, 10), b.cfg.Sleep))
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.ctx.Done():
	}
}

// statement sleeps, unless there is news for those who wait already. With very many who wait it sleeps
// shorter instead.
func (b *bell) statement(pending map[string]sqllock.Waiters) string {
	const most = 256
	var names, ids, latches []any
	var where []string
	var args []any
	for name, w := range pending {
		if len(ids)+len(args) > most {
			return fmt.Sprintf("SELECT SLEEP(%g)", (b.cfg.Sleep / 10).Seconds())
		}
		if len(w.Alone) > 0 {
			names = append(names, []byte(name))
		}
		for _, id := range w.Alone {
			ids = append(ids, id)
		}
		for _, id := range w.Group {
			where = append(where, "name = ? AND LOCATE(?, more) > 0")
			args = append(args, []byte(name), "H "+id+" ")
		}
		if len(w.Latch) > 0 {
			latches = append(latches, []byte(name))
		}
	}
	if len(names) > 0 {
		where = append(where, "name IN ("+marks(len(names))+") AND hid IN ("+marks(len(ids))+")")
		args = slices.Concat(args, names, ids)
	}
	if len(latches) > 0 {
		where = append(where, "name IN ("+marks(len(latches))+") AND (kind <> 3 OR counter = 0)")
		args = append(args, latches...)
	}
	text, _ := b.d.Inline(fmt.Sprintf("SELECT IF(EXISTS (SELECT 1 FROM hf_lock WHERE %s), 0, SLEEP(%g))",
		strings.Join(where, " OR "), b.cfg.Sleep.Seconds()), args)
	return text
}

func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// Wait implements [sqllock.Bell].
func (b *bell) Wait() {
	select {
	case b.wait <- struct{}{}:
	default:
	}
}

// Wake implements [sqllock.Dialect]. A number that was read before q was connected may be of an
// earlier life of the server, and somebody else's by now.
func (d *dialect) Wake(ctx context.Context, q sqllock.Querier, opened time.Time, rings []sqllock.Ring) error {
	var conns []int64
	var servers []any
	for _, r := range rings {
		switch {
		case r.Conn != 0 && r.Asked.After(opened):
			conns = append(conns, r.Conn)
		case r.Server != "":
			servers = append(servers, r.Server)
		}
	}
	if len(servers) > 0 {
		rows, err := q.Query(ctx, "SELECT conn FROM hf_bell WHERE server IN ("+marks(len(servers))+") AND host = CONCAT(@@hostname, ':', @@port)", servers...)
		if err != nil {
			return err
		}
		for rows.Next() {
			var conn int64
			if err := rows.Scan(&conn); err == nil {
				conns = append(conns, conn)
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
	}
	slices.Sort(conns)
	for _, conn := range slices.Compact(conns) {
		if err := kill(ctx, q, conn); lost(err) {
			return err
		} // an answer says that it is gone, or another user's: it looks by itself
	}
	return nil
}

// Announce implements [sqllock.Dialect]: nothing can be told before it is committed.
func (d *dialect) Announce(context.Context, sqllock.Querier, []sqllock.Ring) error { return nil }

// Close implements [sqllock.Bell].
func (b *bell) Close() error {
	b.stop()
	b.wg.Wait()
	return nil
}
