package mysql

import (
	"cmp"
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

// bell wakes processes with KILL QUERY. Each waiting process has one connection that sleeps in a
// statement, and its address in hf_bell. Server itself wakes processes of the same host; see package
// samehost.
//
// The connection sleeps by waiting for a named lock that the reserved connection holds. SLEEP could
// be interrupted as well. But all connections in SLEEP share a mutex, and with MariaDB 10.11 KILL
// and SLEEP sometimes block each other for two seconds.
//
// KILL does nothing if the connection is not sleeping at that moment. So the sleeping statement
// first checks whether a waiter has been granted something.
type bell struct {
	d    *dialect
	cfg  sqllock.BellConfig
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
	wait chan struct{} // receives a value when a request starts to wait
}

// patience is how long an answer may be overdue before the connection is given up.
const patience = 3 * time.Second

// OpenBell implements [sqllock.Dialect].
func (d *dialect) OpenBell(ctx context.Context, cfg sqllock.BellConfig) (sqllock.Bell, string, error) {
	b := &bell{d: d, cfg: cfg, wait: make(chan struct{}, 1)}
	c, err := b.connect(ctx)
	if answer(err) == 1142 {
		return nil, "the user may not write to hf_bell: clients that take locks need that right", nil
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

// connect takes a connection and registers it.
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

// discard closes a connection that others may know as a bell. The application would get it next
// from the pool, and must not be interrupted.
func discard(c *sql.Conn) {
	_ = c.Raw(func(any) error { return sqldriver.ErrBadConn }) // makes the pool drop it
	_ = c.Close()
}

// asleep returns the expression that sleeps. Its value is 0 after the time, 1 if the lock was free,
// and NULL or an error if it was interrupted.
func (b *bell) asleep(limit time.Duration) string {
	return fmt.Sprintf("GET_LOCK('hf_%s', %d)", b.cfg.Server, int(math.Ceil(limit.Seconds()))) // some servers round
}

// lock takes the named lock on the reserved connection. It fails silently while an earlier reserved
// connection still has the lock.
func (b *bell) lock(ctx context.Context) error {
	return b.cfg.Keep(ctx, func(q sqllock.Querier, _ time.Time) error {
		var got sql.NullInt64
		return row(ctx, asking(q), "SELECT "+b.asleep(0), &got)
	})
}

func (b *bell) unlock() string { return "DO RELEASE_LOCK('hf_" + b.cfg.Server + "')" }

// try wakes c once, from another connection, and returns why that failed. That is final for this Server,
// so try repeats an attempt that proves nothing.
func (b *bell) try(ctx context.Context, c *sql.Conn) error {
	const room = tryLimit * 5 / 4 // of the context, for another attempt that fails
	looks := 0
	for left := 4; ; left-- {
		unsure, err := b.tryOnce(ctx, c, &looks)
		end, bounded := ctx.Deadline()
		if err == nil || !unsure || left == 0 || ctx.Err() != nil || bounded && time.Until(end) < room {
			return err
		}
	}
}

// tryLimit is how long a statement sleeps if nobody wakes it.
const tryLimit = 2 * time.Second

// tryOnce is one attempt. unsure reports that a failure proves nothing: the process or the server stood
// still, or the lock was lost with the reserved connection. It kills only a statement that it has found in
// the process list, since a proxy may use other connection IDs. looks counts the looks at that list.
func (b *bell) tryOnce(ctx context.Context, c *sql.Conn, looks *int) (unsure bool, err error) {
	const limit, enough = tryLimit, 20
	ctx, cancel := context.WithTimeout(ctx, 4*limit)
	defer cancel()
	mark := "hf_" + strings.ToLower(rand.Text())
	var got sql.NullInt64
	var slept error
	ended := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		slept = c.QueryRowContext(ctx, "SELECT "+b.asleep(limit)+" AS "+mark).Scan(&got)
	}()
	found, killed, late := false, false, false
	err = b.cfg.Keep(ctx, func(q sqllock.Querier, _ time.Time) error {
		for ; time.Since(began) < limit/2; *looks++ {
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
				killed = true
				err := kill(ctx, q, conn)
				found, late = err == nil, time.Since(began) > limit*3/4
				return err
			}
			select {
			case <-ended:
				return nil
			case <-time.After(time.Millisecond): // the server has no event for the start of a statement
			}
		}
		return nil
	})
	<-ended
	switch {
	case killed && (slept == nil && !got.Valid || slept != nil && answer(slept) == queryInterrupted):
		return false, nil // woken, even if KILL got no answer
	case err != nil:
		return false, err
	case slept == nil && got.Int64 == 1: // perhaps the reserved connection was replaced
		if _, err = c.ExecContext(ctx, b.unlock()); err == nil {
			err = b.lock(ctx)
		}
		return err == nil, cmp.Or(err,
			errors.New("the connections of the pool do not share locks: is there a proxy between?"))
	case slept != nil && answer(slept) != queryInterrupted:
		n := answer(slept)
		return n == tookTooLong || n == tookTooLong8, slept
	case !found:
		return *looks < enough,
			errors.New("the connection's ID is not in the server's process list: is there a proxy between?")
	}
	return late, errors.New("the connection kept sleeping")
}

func kill(ctx context.Context, q sqllock.Querier, conn int64) error {
	_, err := q.Exec(ctx, "KILL QUERY ?", conn)
	return err
}

// sleep runs the connection that is woken.
func (b *bell) sleep(c *sql.Conn) {
	defer func() {
		if c != nil {
			discard(c)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = b.cfg.Keep(ctx, func(q sqllock.Querier, _ time.Time) error { // on failure, the next Server deletes the row
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
		undisturbed := false // it slept to the end
		if c == nil {
			// Bounded, since the application may use all others for long.
			ctx, cancel := context.WithTimeout(b.ctx, b.cfg.Sleep)
			c, err = b.connect(ctx)
			cancel()
		} else {
			ctx, cancel := context.WithTimeout(b.ctx, b.cfg.Sleep+patience)
			var got sql.NullInt64
			began := time.Now()
			// the reserved connection was replaced
			if err = c.QueryRowContext(ctx, b.statement(pending)).Scan(&got); got.Int64 == 1 {
				if _, err = c.ExecContext(ctx, b.unlock()); err == nil {
					err = b.lock(ctx)
				}
			}
			cancel()
			undisturbed = err == nil && time.Since(began) >= b.cfg.Sleep
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
		if !undisturbed || sqllock.Overlap(pending, b.cfg.Waiting()) {
			_ = b.cfg.Look(b.ctx) // ignore the error: the next look may succeed
		}
		if failed > 0 {
			b.pause(failed)
		}
	}
}

// How a sleeping statement may end: KILL QUERY, or a limit that the application has set.
const (
	queryInterrupted = 1317
	tookTooLong      = 1969
	tookTooLong8     = 3024
)

// answer returns the number of a server's error, or 0.
func answer(err error) uint16 {
	var said *mysql.MySQLError
	if errors.As(err, &said) {
		return said.Number
	}
	return 0
}

// pause limits attempts while the server cannot serve. It ends when a request starts to wait, since
// the server has then answered that request.
func (b *bell) pause(failed int) {
	t := time.NewTimer(min(5*time.Millisecond<<min(failed, 10), b.cfg.Sleep/4))
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.wait:
	case <-b.ctx.Done():
	}
}

// statement returns a statement that sleeps, unless a waiter has been granted something already.
// With too many waiters it would become too long; then it sleeps shorter instead.
func (b *bell) statement(pending map[string]sqllock.Waiters) string {
	const most = least / 4
	size := 0
	var names, ids, latches []any
	var where []string
	var args []any
	for name, w := range pending {
		const id = 48 // at most
		if size += (len(w.Alone) + len(w.Group) + 1) * (2*(len(name)+id) + 60); size > most {
			// Twice, since some servers return 1 after an interruption; 1 would mean that the lock
			// was free.
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
	text, _ := b.d.Inline(b.d.Text("SELECT "+sign+" IF(EXISTS (SELECT 1 FROM hf_lock WHERE "+strings.Join(where, " OR ")+
		"), 0, "+b.asleep(b.cfg.Sleep)+")"), args)
	return text
}

func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

func (b *bell) Wait() {
	select {
	case b.wait <- struct{}{}:
	default:
	}
}

func (b *bell) Close() error {
	b.stop()
	b.wg.Wait()
	return nil
}
