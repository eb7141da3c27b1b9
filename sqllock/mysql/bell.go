package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// bell wakes processes with KILL QUERY. Each process that waits has one connection that sleeps in
// a statement, and its address in hf_bell.
//
// It sleeps by waiting for a named lock, which the connection that is kept has. In SLEEP it
// would be woken as well, but all who are in SLEEP share a mutex, over which MariaDB 10.11 sometimes
// lets KILL and everybody in SLEEP wait for each other for two seconds.
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

// patience is how long the server may be overdue with an answer before a connection is given up.
const patience = 3 * time.Second

// OpenBell implements [sqllock.Dialect].
func (d *dialect) OpenBell(ctx context.Context, cfg sqllock.BellConfig) (sqllock.Bell, string, error) {
	b := &bell{d: d, cfg: cfg, wait: make(chan struct{}, 1)}
	c, err := b.connect(ctx)
	if answer(err) == 1142 {
		return nil, "the user may not write hf_bell, as those need who take locks", nil
	}
	if err != nil {
		return nil, "", err
	}
	err = b.lock(ctx)
	if err == nil {
		err = b.try(ctx, c)
	}
	if err != nil {
		discard(c)
		if lost(err) || ctx.Err() != nil || errors.Is(err, driver.ErrUnavailable) || d.Fault(err) == sqllock.NotDone {
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
	if err := b.d.register(ctx, c, b.cfg.Server); err != nil {
		discard(c)
		return nil, err
	}
	return c, nil
}

// discard closes a connection that others may know as a bell: the application, which would get it next
// from the pool, must not be woken.
func discard(c *sql.Conn) {
	_ = c.Raw(func(any) error { return sqldriver.ErrBadConn }) // the pool forgets it
	_ = c.Close()
}

// asleep is the expression that sleeps: 0 after the time, 1 if there was nothing to wait for, or NULL or an
// error when it was woken.
func (b *bell) asleep(limit time.Duration) string {
	return fmt.Sprintf("GET_LOCK('hf_%s', %d)", b.cfg.Server, int(math.Ceil(limit.Seconds()))) // some servers round
}

// lock takes the lock that is waited for, unless the connection that was kept before has it yet.
func (b *bell) lock(ctx context.Context) error {
	return b.cfg.Keep(ctx, func(q sqllock.Querier, _ time.Time) error {
		var got sql.NullInt64
		return row(ctx, asking(q), "SELECT "+b.asleep(0), &got)
	})
}

func (b *bell) unlock() string { return "DO RELEASE_LOCK('hf_" + b.cfg.Server + "')" }

// try wakes c once, from another connection, and returns why it did not work. Nothing is killed that
// has not been seen to be c: a proxy may number connections in its own way.
func (b *bell) try(ctx context.Context, c *sql.Conn) error {
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, 4*limit)
	defer cancel()
	mark := "hf_" + strings.ToLower(rand.Text())
	woken := make(chan error, 1)
	var got sql.NullInt64
	began := time.Now()
	go func() { woken <- c.QueryRowContext(ctx, "SELECT "+b.asleep(limit)+" AS "+mark).Scan(&got) }()
	rung := b.cfg.Keep(ctx, func(q sqllock.Querier, _ time.Time) error {
		for time.Since(began) < limit/2 {
			var conn int64
			rows, err := q.Query(ctx, "SELECT p.id FROM information_schema.processlist AS p JOIN hf_bell AS b ON b.conn = p.id"+
				" WHERE b.server = ? AND p.info LIKE '%GET_LOCK%"+mark+"'", b.cfg.Server)
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
	switch {
	case err != nil || !got.Valid:
	case got.Int64 == 0:
		return errors.New("the connection slept on")
	default:
		return errors.New("the connections of the pool do not share locks: is there a proxy between?")
	}
	if answer(err) == queryInterrupted {
		return nil
	}
	return err
}

func kill(ctx context.Context, q sqllock.Querier, conn int64) error {
	_, err := q.Exec(ctx, "KILL QUERY ?", conn)
	return err
}

// sleep is the life of the connection that is woken.
func (b *bell) sleep(c *sql.Conn) {
	defer func() {
		if c != nil {
			discard(c)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = b.cfg.Keep(ctx, func(q sqllock.Querier, _ time.Time) error { // else the next that begins here will do it
			_, err := q.Exec(ctx, "DELETE FROM hf_bell WHERE server = ?", b.cfg.Server)
			_, err2 := q.Exec(ctx, b.unlock()) // the application gets the connection
			return errors.Join(err, err2)
		})
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
		var err error
		if c == nil {
			// Bounded, since the application may have all others for long.
			ctx, cancel := context.WithTimeout(b.ctx, b.cfg.Sleep)
			c, err = b.connect(ctx)
			cancel()
		} else {
			ctx, cancel := context.WithTimeout(b.ctx, b.cfg.Sleep+patience)
			var got sql.NullInt64
			if err = c.QueryRowContext(ctx, b.statement(pending)).Scan(&got); got.Int64 == 1 { // another connection is kept now
				if _, err = c.ExecContext(ctx, b.unlock()); err == nil {
					err = b.lock(ctx)
				}
			}
			cancel()
			if n := answer(err); n == queryInterrupted || n == tookTooLong || n == tookTooLong8 {
				err = nil
			} else if err != nil && n == 0 {
				discard(c)
				c = nil
			}
		}
		if failed++; err == nil {
			failed = 0
		}
		_ = b.cfg.Look(b.ctx) // else the next
		if failed > 0 {
			b.pause(failed)
		}
	}
}

// What a statement that sleeps ends with: KILL QUERY, or a limit that the application has set.
const (
	queryInterrupted = 1317
	tookTooLong      = 1969
	tookTooLong8     = 3024
)

// answer is the number of an error that is the server's answer, or 0.
func answer(err error) uint16 {
	var said *mysql.MySQLError
	if errors.As(err, &said) {
		return said.Number
	}
	return 0
}

// pause keeps a server that cannot serve from being asked all the time. Who has begun to wait has been
// answered, so it serves again.
func (b *bell) pause(failed int) {
	t := time.NewTimer(min(5*time.Millisecond<<min(failed, 10), b.cfg.Sleep/4))
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.wait:
	case <-b.ctx.Done():
	}
}

// statement sleeps, unless there is news for those who wait already. With so many who wait that it would
// become too long it sleeps shorter instead.
func (b *bell) statement(pending map[string]sqllock.Waiters) string {
	const most = least / 4
	size := 0
	var names, ids, latches []any
	var where []string
	var args []any
	for name, w := range pending {
		const id = 48 // at most
		if size += (len(w.Alone) + len(w.Group) + 1) * (2*(len(name)+id) + 60); size > most {
			// Twice, since some servers say 1 when it was woken, which says that there was nothing to wait for.
			return fmt.Sprintf("SELECT "+sign+" 2 * SLEEP(%g)", (b.cfg.Sleep / 10).Seconds())
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
		where = append(where, "name IN ("+marks(len(names))+") AND hid IN ("+marks(len(ids))+") AND expires > {now}")
		args = slices.Concat(args, names, ids)
	}
	if len(latches) > 0 {
		where = append(where, "name IN ("+marks(len(latches))+") AND (kind <> 3 OR counter = 0)")
		args = append(args, latches...)
	}
	text, _ := b.d.Inline(b.d.Text("SELECT "+sign+" IF(EXISTS (SELECT 1 FROM hf_lock WHERE "+strings.Join(where, " OR ")+"), 0, "+b.asleep(b.cfg.Sleep)+")"), args)
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

// Close implements [sqllock.Bell].
func (b *bell) Close() error {
	b.stop()
	b.wg.Wait()
	return nil
}
