package open

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock"
)

// sqlPool is the database of a URL. It connects when it needs a connection.
type sqlPool struct {
	dialect    sqllock.Dialect
	db, listen *sql.DB // listen: nil if the URL has no direct connection
	place      string
	missing    func(error) error // the server's error about a missing database or schema, or nil
}

// In the pool of a process, one connection waits for pushes, one is reserved for renewals, and one
// or two work. An idle one is closed, since a command may run for hours.
const (
	poolSize = 4
	poolIdle = 10 * time.Second
)

// sqlPoolOf returns the pool for a URL of MySQL, MariaDB or PostgreSQL.
func sqlPoolOf(scheme, rawURL string, dial Dialer) (p *sqlPool, err error) {
	if scheme == "mysql" || scheme == "mariadb" {
		p, err = mySQLPool(rawURL, dial)
	} else {
		p, err = postgresPool(rawURL, dial)
	}
	if err != nil {
		return nil, err
	}
	p.db.SetMaxOpenConns(poolSize)
	p.db.SetConnMaxIdleTime(poolIdle)
	return p, nil
}

func (p *sqlPool) close() error {
	err := p.db.Close()
	if p.listen != nil {
		err = errors.Join(err, p.listen.Close())
	}
	return err
}

// open returns the store of the pool; its Close closes the pool.
func (p *sqlPool) open() *Store {
	return &Store{&sqlStore{sqllock.New(p.db, p.dialect, &sqllock.Config{Listen: p.listen}), p, operatorLimit}, p.place}
}

// explain turns the text of an error into one line, with advice in the terms of the command line.
func (p *sqlPool) explain(err error) error {
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(err.Error(), `"holdfast init"`, initHint)
	if said := p.missing(err); said != nil {
		text = fmt.Sprintf("%v: there is no such database or schema; create it, then its tables with %s: %v",
			driver.ErrRefused, initHint, said)
	}
	text = strings.NewReplacer(":\n\t", ": ", "\n\t", "; ", "\n", "; ").Replace(text)
	if text == err.Error() {
		return err
	}
	return &redacted{text, err}
}

const initHint = `"holdfast init --store URL"`

// sqlStore is a Server with a pool of its own. It bounds the calls that belong to no session, since
// the client does not bound them. Without that the drivers would wait for a silent server forever.
type sqlStore struct {
	*sqllock.Server
	p     *sqlPool
	limit time.Duration // operatorLimit, except in tests
}

// operatorLimit is how long a server may take to answer an operator.
const operatorLimit = 10 * time.Second

func (s *sqlStore) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	session, err := s.Server.Open(ctx, cfg)
	return session, s.p.explain(err)
}

func (s *sqlStore) bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.p.explain(f(ctx))
}

func (s *sqlStore) List(ctx context.Context, prefix, after string, limit int) (list []driver.Record, err error) {
	err = s.bounded(ctx, func(ctx context.Context) (err error) {
		list, err = s.Server.List(ctx, prefix, after, limit)
		return err
	})
	return list, err
}

func (s *sqlStore) Inspect(ctx context.Context, name string) (r driver.Record, err error) {
	err = s.bounded(ctx, func(ctx context.Context) (err error) {
		r, err = s.Server.Inspect(ctx, name)
		return err
	})
	return r, err
}

func (s *sqlStore) Break(ctx context.Context, name string, token uint64) error {
	return s.bounded(ctx, func(ctx context.Context) error { return s.Server.Break(ctx, name, token) })
}

func (s *sqlStore) RemoveLatch(ctx context.Context, name string) error {
	return s.bounded(ctx, func(ctx context.Context) error { return s.Server.RemoveLatch(ctx, name) })
}

func (s *sqlStore) SetLimit(ctx context.Context, name string, limit int) error {
	return s.bounded(ctx, func(ctx context.Context) error { return s.Server.SetLimit(ctx, name, limit) })
}

func (s *sqlStore) AddHistory(ctx context.Context, name, text string, keep int) error {
	return s.bounded(ctx, func(ctx context.Context) error { return s.Server.AddHistory(ctx, name, text, keep) })
}

func (s *sqlStore) History(ctx context.Context, name string) (list []driver.Entry, err error) {
	err = s.bounded(ctx, func(ctx context.Context) (err error) {
		list, err = s.Server.History(ctx, name)
		return err
	})
	return list, err
}

func (s *sqlStore) WhyMissing(ctx context.Context, name string, held time.Duration) (cause driver.Cause, err error) {
	err = s.bounded(ctx, func(ctx context.Context) (err error) {
		cause, err = s.Server.WhyMissing(ctx, name, held)
		return err
	})
	return cause, err
}

func (s *sqlStore) Neighbors(ctx context.Context, name string) (list []string, err error) {
	err = s.bounded(ctx, func(ctx context.Context) (err error) {
		list, err = s.Server.Neighbors(ctx, name)
		return err
	})
	return list, err
}

// Polling returns the reason of the Server, in the terms of the command line.
func (s *sqlStore) Polling() string {
	return strings.ReplaceAll(s.Server.Polling(), "Config.Listen", listenParameter+"= in the URL")
}

// Close closes the server and the pool.
func (s *sqlStore) Close() error { return errors.Join(s.Server.Close(), s.p.close()) }

// Polling returns why waiters poll this store; "" if it wakes them. It is known once a client has
// been opened.
func (s *Store) Polling() string {
	if p, ok := s.Backend.(interface{ Polling() string }); ok {
		return p.Polling()
	}
	return ""
}
