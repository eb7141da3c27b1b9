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

// listener is the one connection on which a process receives notifications of hand-overs, but for
// those of processes on the same host; see package samehost.
//
// The server wakes every listening session of a database for each notification. So a process
// listens only while it has waiters, and shortly afterwards.
type listener struct {
	cfg  sqllock.BellConfig
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	idle  time.Duration // how long it keeps listening without waiters
	wait  chan struct{} // receives a value when a request starts to wait
	began time.Time
	asked atomic.Int64 // when Wait was last called, as time since began

	secret atomic.Pointer[secret]
	doubt  atomic.Bool // a sender used another secret: a stranger, or all others after a new secret
}

// channel is where a Server is notified.
func channel(server string) string { return "hf_" + server }

// testLimit bounds the wait for the first notification, and patience a reconnection.
const (
	testLimit = 3 * time.Second
	patience  = 10 * time.Second
)

// OpenBell implements [sqllock.Dialect].
func (d *dialect) OpenBell(ctx context.Context, cfg sqllock.BellConfig) (sqllock.Bell, string, error) {
	l := &listener{cfg: cfg, idle: d.idle, wait: make(chan struct{}, 1), began: time.Now()}
	c, pid, secret, err := l.connect(ctx)
	if errors.Is(err, errOtherDriver) {
		return nil, "the pool's connections are not those of github.com/jackc/pgx/v5/stdlib, so they cannot listen", nil
	}
	var said sqlState
	switch {
	case errors.As(err, &said) && said.SQLState() == "42501":
		return nil, sqllock.NoSecretRight, nil
	case errors.Is(err, errNoSecret):
		return nil, err.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	arrived, err := l.try(ctx, c, pid)
	if err != nil || !arrived {
		l.unlisten(ctx, c, pid)
		discard(c)
		if err != nil {
			return nil, "", err
		}
		return nil,
			"notifications do not arrive: is there a pooler in transaction mode between? Config.Listen can be a direct connection", nil
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.wg.Go(func() { l.listen(c, secret) })
	return l, "", nil
}

var errNoSecret = errors.New("hf_secret has no row, or an empty one; \"holdfast init\" creates it")

var errOtherDriver = errors.New("not a connection of pgx")

// connect takes a connection and listens. pid is the server's process for it.
func (l *listener) connect(ctx context.Context) (c *sql.Conn, pid string, s secret, err error) {
	if c, err = l.cfg.DB.Conn(ctx); err != nil {
		return nil, "", nil, err
	}
	err = raw(c, func(p *pgx.Conn) error {
		answer, err := simple(ctx, p,
			"SELECT pg_backend_pid(), (SELECT encode(secret, 'hex') FROM hf_secret WHERE one = 1); LISTEN "+
				channel(l.cfg.Server))
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
	l.secret.Store(&s)
	return c, pid, s, nil
}

// simple runs unprepared statements in one transaction and returns the row of the first.
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

// unlisten stops listening in the server's process pid, which a pooler may lend to others next. It
// requests connections until it gets that process, usually at once.
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

// raw calls f with pgx's connection of c.
func raw(c *sql.Conn, f func(*pgx.Conn) error) error {
	return c.Raw(func(dc any) error {
		p, ok := dc.(*stdlib.Conn)
		if !ok {
			return errOtherDriver
		}
		return f(p.Conn())
	})
}

// discard closes a connection that listens, so nobody else gets it.
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

// try notifies this Server as others do, and reports whether the notification arrives. It fails if
// the reserved connection and c share the server's process pid: then a pooler lends processes to
// transactions.
func (l *listener) try(ctx context.Context, c *sql.Conn, pid string) (arrived bool, err error) {
	var notified, sender string
	err = l.cfg.Keep(ctx, func(q sqllock.Querier, _ time.Time) error {
		_, err := one(ctx, q, "SELECT pg_notify($1, '')::text, pg_backend_pid()::text", []any{channel(l.cfg.Server)},
			&notified, &sender)
		return err
	})
	if err != nil || sender == pid {
		return false, err
	}
	limit := testLimit
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	// If this process stands still, only one of the parts passes unused.
	const parts = 10
	for range parts {
		limited, cancel := context.WithTimeout(ctx, limit/parts)
		err = raw(c, func(p *pgx.Conn) error {
			_, err := p.WaitForNotification(limited)
			return err
		})
		silent := err != nil && limited.Err() != nil && ctx.Err() == nil
		cancel()
		if !silent {
			return err == nil, err
		}
	}
	return false, nil
}

// checkEvery is how often a silent connection is checked, and restEvery how often if it does not
// listen.
const (
	checkEvery = 5 * time.Second
	restEvery  = 30 * time.Second
)

// secretFor is the least time between two reads of the secret, whatever a stranger sends.
const secretFor = 5 * time.Second

// alert is how long a process without waiters listens after a connection broke. The server may have
// crashed and lost a release or a cancel. When it grants to that request again, the process gives
// the grant back.
const alert = time.Minute

// listen receives notifications, and reconnects when the connection breaks.
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
		_ = raw(c, func(p *pgx.Conn) error { return l.receive(p, s) })
		discard(c)
		c = nil
		if failed++; time.Since(began) > time.Second {
			failed = 0
		} else { // it breaks as soon as it is open
			l.pause(failed)
		}
	}
	if c != nil {
		discard(c)
	}
}

// again reconnects, and looks for what was missed.
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

// receive handles notifications until the connection breaks.
func (l *listener) receive(p *pgx.Conn, s secret) error {
	l.doubt.Store(false)
	for began, alive := time.Now(), time.Now(); ; {
		if l.doubt.Load() && time.Since(began) >= secretFor {
			return errNewSecret // reconnecting reads it
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
			if !ok && n.Payload != "" {
				l.doubt.Store(true)
			}
			alive = time.Now()
			continue
		case !silent:
			return err
		case !l.needed():
			err = l.rest(p, s)
		case time.Since(alive) < checkEvery:
			continue
		default:
			err = l.alive(p, s)
		}
		if err != nil {
			return err
		}
		alive = time.Now()
	}
}

// needed reports whether requests wait, or waited recently.
func (l *listener) needed() bool {
	select {
	case <-l.wait: // its request is in Waiting, or has ended
	default:
	}
	return time.Since(l.began)-time.Duration(l.asked.Load()) < l.idle || len(l.cfg.Waiting()) > 0
}

// rest stops listening until a request waits, and then looks for what was missed.
func (l *listener) rest(p *pgx.Conn, s secret) error {
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
			if err := l.alive(p, s); err != nil {
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

// pause limits attempts while the server cannot serve.
func (l *listener) pause(failed int) {
	t := time.NewTimer(min(5*time.Millisecond<<min(failed, 10), time.Second))
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.ctx.Done():
	}
}

func (l *listener) Wait() {
	if now := int64(time.Since(l.began)); now > l.asked.Load() {
		l.asked.Store(now)
	}
	select {
	case l.wait <- struct{}{}:
	default:
	}
}

func (l *listener) Close() error {
	l.stop()
	l.wg.Wait()
	return nil
}

// Announce implements [sqllock.Dialect]. The notifications arrive when the transaction commits.
func (d *dialect) Announce(ctx context.Context, q sqllock.Querier, rings []sqllock.Ring) error {
	if !d.tells() {
		return nil
	}
	channels, payloads := make([]string, len(rings)), make([]string, len(rings))
	for i, r := range rings {
		channels[i], payloads[i] = channel(r.Server), sqllock.RingText(r)
	}
	_, err := q.Exec(ctx, "SELECT pg_notify(c, "+sealed("c", "p")+") FROM unnest($1::text[], $2::text[]) AS told (c, p)",
		array(channels), array(payloads))
	return err
}

// muteFor is how long no notifications are sent after the server's queue of notifications was full.
// A session that listens and stays in a transaction fills that queue, for the whole server. Then
// every transaction that notifies fails. Waiters without notifications find out when they renew
// their places.
const muteFor = 10 * time.Second

func (d *dialect) tells() bool { return time.Since(d.began) >= time.Duration(d.muted.Load()) }

func (d *dialect) mute() { d.muted.Store(int64(time.Since(d.began) + muteFor)) }

// Wake implements [sqllock.Dialect]: a transaction has left these notifications out.
func (d *dialect) Wake(ctx context.Context, q sqllock.Querier, _ time.Time, rings []sqllock.Ring) error {
	return d.Announce(ctx, q, rings)
}
