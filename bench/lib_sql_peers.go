package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"hash/fnv"
	"net"
	"time"

	"cirello.io/pglock"
	"github.com/lib/pq"
)

const (
	getLockName  = "get-lock"
	advisoryName = "advisory"
)

var (
	getLock = sessionLock(getLockName, mariaDB, "SELECT GET_LOCK(?, 3600)", "SELECT RELEASE_LOCK(?)",
		func(name string) any { return name })

	// The key is a number: the hash of the name.
	advisory = sessionLock(advisoryName, postgreSQL, "SELECT pg_advisory_lock($1) IS NOT NULL",
		"SELECT pg_advisory_unlock($1)", func(name string) any {
			h := fnv.New64a()
			_, _ = h.Write([]byte(name))
			return int64(h.Sum64())
		})
)

// sessionLock is a lock of the server, which belongs to a connection. A contender has a connection
// of its own while it waits and while it holds the lock.
func sessionLock(name string, k *sqlKind, lock, unlock string, key func(string) any) library {
	return library{name: name, waits: true, open: func(_ context.Context, at site) (client, error) {
		db := k.pool(at.addr, at.wire, true)
		db.SetMaxIdleConns(maxConnections)
		return &sessionClient{db, lock, unlock, key}, nil
	}}
}

type sessionClient struct {
	db           *sql.DB
	take, giveUp string
	key          func(string) any
}

func (c *sessionClient) contender(name string) contender {
	return &sessionContender{sessionClient: c, name: c.key(name)}
}

func (c *sessionClient) hold(context.Context, string) error { return errors.ErrUnsupported }

func (c *sessionClient) close() error { return c.db.Close() }

type sessionContender struct {
	*sessionClient
	name any
	conn *sql.Conn
}

func (k *sessionContender) lock(ctx context.Context) (err error) {
	if k.conn, err = k.db.Conn(ctx); err != nil {
		return err
	}
	var got bool
	err = k.conn.QueryRowContext(ctx, k.take, k.name).Scan(&got)
	if err == nil && !got {
		err = errBusy
	}
	if err != nil {
		return errors.Join(err, k.conn.Close())
	}
	return nil
}

func (k *sessionContender) unlock() error {
	var ours bool
	err := k.conn.QueryRowContext(context.Background(), k.giveUp, k.name).Scan(&ours)
	if err == nil && !ours {
		err = errNotOurs
	}
	return errors.Join(err, k.conn.Close())
}

// The usual hand-written lock: a row with the holder and the end of its lease. An upsert takes it
// after that end; there is another attempt every 10 ms. No token, no queue.

const (
	naiveMySQLName    = "mysql-row"
	naivePostgresName = "postgres-row"
	naiveTable        = "naive_lock"
	naiveEvery        = 10 * time.Millisecond
)

var naiveSchema = map[string]string{
	"mysql":    "CREATE TABLE naive_lock (name VARCHAR(255) PRIMARY KEY, owner VARCHAR(64) NOT NULL, expires DATETIME(6) NOT NULL)",
	"postgres": "CREATE TABLE naive_lock (name text PRIMARY KEY, owner text NOT NULL, expires timestamptz NOT NULL)",
}

// The first takes the lock, the second releases it; an affected row means success.
var naiveStatements = map[string][2]string{
	"mysql": {`INSERT INTO naive_lock (name, owner, expires) VALUES (?, ?, NOW(6) + INTERVAL 15 SECOND)
		ON DUPLICATE KEY UPDATE owner = IF(expires <= NOW(6), VALUES(owner), owner),
		expires = IF(owner = VALUES(owner), VALUES(expires), expires)`,
		"UPDATE naive_lock SET expires = '1970-01-02' WHERE name = ? AND owner = ?"},
	"postgres": {`INSERT INTO naive_lock (name, owner, expires) VALUES ($1, $2, now() + interval '15 seconds')
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires = excluded.expires
		WHERE naive_lock.expires <= now() RETURNING owner`,
		"UPDATE naive_lock SET expires = '-infinity' WHERE name = $1 AND owner = $2"},
}

func naive(name string, k *sqlKind) library {
	return library{name: name, waits: true, open: func(_ context.Context, at site) (client, error) {
		db := k.pool(at.addr, at.wire, true)
		db.SetMaxIdleConns(maxConnections)
		return &naiveClient{db, naiveStatements[k.store]}, nil
	}}
}

type naiveClient struct {
	db   *sql.DB
	text [2]string
}

func (c *naiveClient) contender(name string) contender {
	return &naiveContender{c, name, rand.Text()}
}

func (c *naiveClient) hold(context.Context, string) error { return errors.ErrUnsupported }

func (c *naiveClient) close() error { return c.db.Close() }

type naiveContender struct {
	*naiveClient
	name, owner string
}

func (k *naiveContender) lock(ctx context.Context) error {
	for {
		ok, err := k.do(ctx, k.text[0])
		if ok || err != nil {
			return err
		}
		if pause(ctx, naiveEvery); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func (k *naiveContender) unlock() error {
	ok, err := k.do(context.Background(), k.text[1])
	if err == nil && !ok {
		err = errNotOurs
	}
	return err
}

func (k *naiveContender) do(ctx context.Context, text string) (bool, error) {
	res, err := k.db.ExecContext(ctx, text, k.name, k.owner)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// pglock runs uncontended only: a refused call sleeps for a whole lease, 20 s.

const pglockTable = pglock.DefaultTableName

var pglockDefault = library{name: "pglock", open: func(ctx context.Context, at site) (client, error) {
	connector, err := pq.NewConnector(postgresURL(at.addr))
	if err != nil {
		return nil, err
	}
	connector.Dialer(pqDialer{at.wire})
	db := sql.OpenDB(connector)
	c, err := pglock.New(db)
	if err == nil {
		err = c.TryCreateTable()
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return pglockClient{c, db}, nil
}}

// pqDialer counts the messages of lib/pq.
type pqDialer struct{ w *wire }

func (d pqDialer) Dial(_, addr string) (net.Conn, error) { return d.DialTimeout("tcp", addr, 0) }

func (d pqDialer) DialTimeout(_, addr string, limit time.Duration) (net.Conn, error) {
	return d.w.dial(context.Background(), &net.Dialer{Timeout: limit}, addr, new(postgresParser))
}

type pglockClient struct {
	c  *pglock.Client
	db *sql.DB
}

func (c pglockClient) contender(name string) contender { return &pglockContender{c: c.c, name: name} }

func (c pglockClient) hold(context.Context, string) error { return errors.ErrUnsupported }

func (c pglockClient) close() error { return c.db.Close() }

type pglockContender struct {
	c    *pglock.Client
	name string
	l    *pglock.Lock
}

func (k *pglockContender) lock(ctx context.Context) (err error) {
	k.l, err = k.c.AcquireContext(ctx, k.name)
	return err
}

func (k *pglockContender) unlock() error { return k.c.Release(k.l) }
