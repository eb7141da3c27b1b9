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

// sqlPool is a database that a URL leads to. The connections are made when they are needed.
type sqlPool struct {
	dialect    sqllock.Dialect
	db, listen *sql.DB // listen: nil if the URL names no direct way
	place      string
	missing    func(error) error // what the server said, if it said that there is no such database or schema
}

// Of a process's pool: one connection waits for news, one is kept for renewals, one or two work. One that
// has worked is not kept while a command runs for hours.
const (
	poolSize = 4
	poolIdle = 10 * time.Second
)

// sqlPoolOf is the pool of a URL of one of these stores.
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

// open makes the store of the pool, which it closes.
func (p *sqlPool) open() *Store {
	return &Store{&sqlStore{sqllock.New(p.db, p.dialect, &sqllock.Config{Listen: p.listen}), p, operatorLimit}, p.place}
}

// explain makes the text of an error one line that says what to do in the terms of the command line.
func (p *sqlPool) explain(err error) error {
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(err.Error(), `"holdfast init"`, initHint)
	if said := p.missing(err); said != nil {
		text = fmt.Sprintf("%v: there is no such database or schema; make it, then its tables with %s: %v", driver.ErrRefused, initHint, said)
	}
	text = strings.NewReplacer(":\n\t", ": ", "\n\t", "; ", "\n", "; ").Replace(text)
	if text == err.Error() {
		return err
	}
	return &redacted{text, err}
}

const initHint = `"holdfast init --store URL"`

// sqlStore is a Server with a pool of its own. What belongs to no session, and so is not bounded by the
// client, is bounded here: the drivers wait for a server that does not answer for as long as they may.
type sqlStore struct {
	*sqllock.Server
	p     *sqlPool
	limit time.Duration // operatorLimit, but for tests
}

// operatorLimit is how long a server may take to answer an operator.
const operatorLimit = 10 * time.Second

func (s *sqlStore) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	session, err := s.Server.Open(ctx, cfg)
	return session, s.p.explain(err)
}

func (s *sqlStore) ask(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.p.explain(f(ctx))
}

func (s *sqlStore) List(ctx context.Context, prefix, after string, limit int) (list []driver.Record, err error) {
	err = s.ask(ctx, func(ctx context.Context) (err error) {
		list, err = s.Server.List(ctx, prefix, after, limit)
		return err
	})
	return list, err
}

func (s *sqlStore) Inspect(ctx context.Context, name string) (r driver.Record, err error) {
	err = s.ask(ctx, func(ctx context.Context) (err error) {
		r, err = s.Server.Inspect(ctx, name)
		return err
	})
	return r, err
}

func (s *sqlStore) Break(ctx context.Context, name string, token uint64) error {
	return s.ask(ctx, func(ctx context.Context) error { return s.Server.Break(ctx, name, token) })
}

func (s *sqlStore) SetLimit(ctx context.Context, name string, limit int) error {
	return s.ask(ctx, func(ctx context.Context) error { return s.Server.SetLimit(ctx, name, limit) })
}

// Polling is the Server's, in the terms of the command line.
func (s *sqlStore) Polling() string {
	return strings.ReplaceAll(s.Server.Polling(), "Config.Listen", listenParameter+"= in the URL")
}

// Close closes the pool, too.
func (s *sqlStore) Close() error { return errors.Join(s.Server.Close(), s.p.close()) }

// Polling says why those who wait at this store ask it again and again instead of being woken; "" if they
// are woken. It is known once a client has been opened.
func (s *Store) Polling() string {
	if p, ok := s.Backend.(interface{ Polling() string }); ok {
		return p.Polling()
	}
	return ""
}
