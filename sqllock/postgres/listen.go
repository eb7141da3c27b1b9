package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// listener is the one connection on which a process hears of hand-overs.
//
// The server wakes everybody who listens in a database, whatever is told to whom. So only those listen who wait,
// or have just waited.
type listener struct {
	cfg  sqllock.BellConfig
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	idle  time.Duration // how long it goes on listening when nobody waits
	wait  chan struct{} // somebody waits
	began time.Time
	asked atomic.Int64 // when that was said last, in time since began
}

// channel is where a Server is told.
func channel(server string) string { return "hf_" + server }

// testLimit is how long the first notification may take, and patience how long it may take to connect again.
const (
	testLimit = 3 * time.Second
	patience  = 10 * time.Second
)

// OpenBell implements [sqllock.Dialect].
func (d *dialect) OpenBell(ctx context.Context, cfg sqllock.BellConfig) (sqllock.Bell, string, error) {
	l := &listener{cfg: cfg, idle: d.idle, wait: make(chan struct{}, 1), began: time.Now()}
	c, pid, secret, err := l.connect(ctx)
	if errors.Is(err, errOtherDriver) {
		return nil, "the pool's connections are not those of github.com/jackc/pgx/v5/stdlib, so nobody can listen", nil
	}
	var said sqlState
	switch {
	case errors.As(err, &said) && said.SQLState() == "42501":
		return nil, "the role may not read hf_secret, as those need who take locks", nil
	case errors.Is(err, errNoSecret):
		return nil, err.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	heard, err := l.try(ctx, c, pid)
	if err != nil || !heard {
		l.unlisten(ctx, c, pid)
		discard(c)
		if err != nil {
			return nil, "", err
		}
		return nil, "notifications do not arrive: is there a pooler in transaction mode between? Config.Listen can be a direct way", nil
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.wg.Go(func() { l.listen(c, secret) })
	return l, "", nil
}

var errNoSecret = errors.New("hf_secret has no row, or an empty one; \"holdfast init\" makes it")

var errOtherDriver = errors.New("not a connection of pgx")

// connect takes a connection and listens. pid is the server's process behind it.
func (l *listener) connect(ctx context.Context) (c *sql.Conn, pid string, s secret, err error) {
	if c, err = l.cfg.DB.Conn(ctx); err != nil {
		return nil, "", nil, err
	}
	err = raw(c, func(p *pgx.Conn) error {
		answer, err := simple(ctx, p, "SELECT pg_backend_pid(), (SELECT encode(secret, 'hex') FROM hf_secret WHERE one = 1); LISTEN "+channel(l.cfg.Server))
		if err != nil {
			return err
		}
		pid = answer[0]
		if s, err = hex.DecodeString(answer[1]); err == nil && len(s) == 0 {
			err = errNoSecret
		}
		return err
	})
	if err != nil {
		discard(c)
		return nil, "", nil, err
	}
	return c, pid, s, nil
}

// simple runs statements in one transaction, unprepared, and returns the row of the first.
func simple(ctx context.Context, p *pgx.Conn, statements string) ([]string, error) {
	results, err := p.PgConn().Exec(ctx, statements).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) == 0 || len(results[0].Rows) != 1 {
		return nil, fmt.Errorf("no answer to %q", statements)
	}
	var row []string
	for _, v := range results[0].Rows[0] {
		row = append(row, string(v))
	}
	return row, nil
}

// unlisten ends listening on the server's process pid, which a pooler may lend to others next. It is
// found by asking for a connection again and again; as a rule the first is the one.
func (l *listener) unlisten(ctx context.Context, c *sql.Conn, pid string) {
	for range 50 {
		var got string
		err := raw(c, func(p *pgx.Conn) error {
			answer, err := simple(ctx, p, "SELECT pg_backend_pid(); UNLISTEN "+channel(l.cfg.Server))
			if err == nil {
				got = answer[0]
			}
			return err
		})
		if err != nil || got == pid {
			return
		}
	}
}

// raw lends pgx's connection under c.
func raw(c *sql.Conn, f func(*pgx.Conn) error) error {
	return c.Raw(func(dc any) error {
		p, ok := dc.(*stdlib.Conn)
		if !ok {
			return errOtherDriver
		}
		return f(p.Conn())
	})
}

// discard closes a connection that nobody else may get: it listens.
func discard(c *sql.Conn) {
	_ = c.Raw(func(dc any) error {
		if p, ok := dc.(*stdlib.Conn); ok {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = p.Conn().Close(ctx)
		}
		return nil
	})
	_ = c.Close()
}

// try tells this Server something, the way others do, and reports whether that arrives. It does not
// where the kept connection turns out to be the same process of the server, pid, as c: they are lent to
// whoever has a transaction.
func (l *listener) try(ctx context.Context, c *sql.Conn, pid string) (heard bool, err error) {
	var told, teller string
	err = l.cfg.Keep(ctx, func(q sqllock.Querier, _ time.Time) error {
		_, err := one(ctx, q, "SELECT pg_notify($1, '')::text, pg_backend_pid()::text", []any{channel(l.cfg.Server)}, &told, &teller)
		return err
	})
	if err != nil || teller == pid {
		return false, err
	}
	limit := testLimit
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = raw(c, func(p *pgx.Conn) error {
		_, err := p.WaitForNotification(limited)
		return err
	})
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// checkEvery is how often a connection on which nothing comes is asked whether it lives, and restEvery the
// same of one that does not listen.
const (
	checkEvery = 5 * time.Second
	restEvery  = 30 * time.Second
)

// secretFor is how long the secret counts at least that was read, whatever a stranger sends.
const secretFor = 5 * time.Second

// alert is how long who waits for nothing listens after a connection broke. The server may have crashed and
// forgotten that somebody has released, or left the line; when it grants to him again, he gives that back.
const alert = time.Minute

// listen hears what others tell, and connects again when the connection breaks.
func (l *listener) listen(c *sql.Conn, s secret) {
	failed := 0
	for l.ctx.Err() == nil {
		if c == nil {
			if c, s = l.again(); c == nil {
				failed++
				l.pause(failed)
				continue
			}
		}
		began := time.Now()
		_ = raw(c, func(p *pgx.Conn) error { return l.hear(p, s) })
		discard(c)
		c = nil
		if failed++; time.Since(began) > time.Second {
			failed = 0
		} else { // it breaks as soon as it is made
			l.pause(failed)
		}
	}
	if c != nil {
		discard(c)
	}
}

// again connects again, and looks up what was told meanwhile.
func (l *listener) again() (*sql.Conn, secret) {
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	c, _, s, err := l.connect(ctx)
	if err != nil {
		return nil, nil
	}
	if err := l.cfg.Look(ctx); err != nil {
		discard(c)
		return nil, nil
	}
	l.asked.Store(int64(time.Since(l.began) + alert))
	return c, s
}

// hear reports what arrives, until the connection breaks.
func (l *listener) hear(p *pgx.Conn, s secret) error {
	doubt := false // somebody has used another secret: a stranger, or all others, after it was made anew
	for began, alive := time.Now(), time.Now(); ; {
		if doubt && time.Since(began) >= secretFor {
			return errNoSecret // it is read again, with a new connection
		}
		ctx, cancel := context.WithTimeout(l.ctx, min(l.idle, checkEvery))
		n, err := p.WaitForNotification(ctx)
		silent := err != nil && ctx.Err() != nil
		cancel()
		switch {
		case l.ctx.Err() != nil:
			return l.ctx.Err()
		case err == nil:
			r, ok := s.parse(n.Channel, n.Payload)
			if ok {
				l.cfg.Heard(r)
			}
			doubt = doubt || !ok && n.Payload != ""
			alive = time.Now()
			continue
		case !silent:
			return err
		case !l.needed():
			err = l.rest(p)
		case time.Since(alive) < checkEvery:
			continue
		default:
			err = l.alive(p)
		}
		if err != nil {
			return err
		}
		alive = time.Now()
	}
}

func (l *listener) alive(p *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(l.ctx, checkEvery)
	defer cancel()
	return p.Ping(ctx)
}

// needed reports whether somebody waits, or did a moment ago.
func (l *listener) needed() bool {
	select {
	case <-l.wait: // whoever it was is among those that are asked for now, or needs nothing any more
	default:
	}
	return time.Since(l.began)-time.Duration(l.asked.Load()) < l.idle || len(l.cfg.Waiting()) > 0
}

// rest does not listen until somebody waits, and looks up what was told meanwhile.
func (l *listener) rest(p *pgx.Conn) error {
	say := func(statement string) error {
		ctx, cancel := context.WithTimeout(l.ctx, testLimit)
		defer cancel()
		_, err := p.PgConn().Exec(ctx, statement+" "+channel(l.cfg.Server)).ReadAll()
		return err
	}
	if err := say("UNLISTEN"); err != nil {
		return err
	}
	for tick, resting := time.Tick(restEvery), true; resting; {
		select {
		case <-l.wait:
			resting = false
		case <-tick:
			if err := l.alive(p); err != nil {
				return err
			}
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
	}
	if err := say("LISTEN"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	return l.cfg.Look(ctx)
}

// pause keeps a server that cannot serve from being asked all the time.
func (l *listener) pause(failed int) {
	t := time.NewTimer(min(5*time.Millisecond<<min(failed, 10), time.Second))
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.ctx.Done():
	}
}

// Wait implements [sqllock.Bell].
func (l *listener) Wait() {
	if now := int64(time.Since(l.began)); now > l.asked.Load() {
		l.asked.Store(now)
	}
	select {
	case l.wait <- struct{}{}:
	default:
	}
}

// Close implements [sqllock.Bell].
func (l *listener) Close() error {
	l.stop()
	l.wg.Wait()
	return nil
}

// Announce implements [sqllock.Dialect]: who is told hears it when the transaction commits.
func (d *dialect) Announce(ctx context.Context, q sqllock.Querier, rings []sqllock.Ring) error {
	if !d.tells() {
		return nil
	}
	channels, payloads := make([]string, len(rings)), make([]string, len(rings))
	for i, r := range rings {
		channels[i], payloads[i] = channel(r.Server), told(r)
	}
	_, err := q.Exec(ctx, "SELECT pg_notify(c, "+sealed("c", "p")+") FROM unnest($1::text[], $2::text[]) AS told (c, p)", array(channels), array(payloads))
	return err
}

// muteFor is how long nobody is told anything after the server's queue of notifications was found to be full. A session that
// listens and stays in a transaction fills it, for the whole server, and every transaction that notifies fails.
// Those who were not told find out when they renew their places.
const muteFor = 10 * time.Second

func (d *dialect) tells() bool { return time.Since(d.began) >= time.Duration(d.muted.Load()) }

func (d *dialect) mute() { d.muted.Store(int64(time.Since(d.began) + muteFor)) }

// Wake implements [sqllock.Dialect]: they have been told.
func (d *dialect) Wake(context.Context, sqllock.Querier, time.Time, []sqllock.Ring) error { return nil }
