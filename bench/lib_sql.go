package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/sqllock"
)

const (
	oursMySQL    = "holdfast-mysql"
	oursPostgres = "holdfast-postgres"
)

// sqlLibraries lists those of one kind of server in the order of the tables. Those that do not wait
// run uncontended only.
func sqlLibraries(k *sqlKind) []library {
	if k == mariaDB {
		return []library{getLock, naive(naiveMySQLName, k), holdfastSQL(oursMySQL, k)}
	}
	return []library{advisory, naive(naivePostgresName, k), pglockDefault, holdfastSQL(oursPostgres, k)}
}

// poolSize is how many connections an application might allow its pool.
const poolSize = 10

func holdfastSQL(name string, k *sqlKind) library {
	return library{name: name, waits: true, open: func(ctx context.Context, at site) (client, error) {
		db := k.pool(at.addr, at.wire, false)
		db.SetMaxOpenConns(poolSize)
		db.SetMaxIdleConns(poolSize)
		backend := closing{sqllock.New(db, k.dialect, nil), db.Close}
		p := &placedClient{}
		cfg := config(at)
		cfg.Observer = &holdfast.Observer{
			Waiting: func(holdfast.Waiting) { p.joined.CompareAndSwap(0, int64(time.Since(began))) },
		}
		c, err := holdfast.New(ctx, backend, cfg)
		if err != nil {
			return nil, errors.Join(err, backend.Close())
		}
		p.holdfastClient = holdfastClient{c: c, backend: backend}
		return p, nil
	}}
}

// placedClient knows since when its contender has been in the queue. It can have only one.
type placedClient struct {
	holdfastClient
	joined atomic.Int64 // since began
}

func (c *placedClient) contender(name string) contender {
	return &placedContender{holdfastContender{m: c.c.Mutex(name)}, &c.joined}
}

type placedContender struct {
	holdfastContender
	joined *atomic.Int64
}

func (k *placedContender) lock(ctx context.Context) error {
	k.joined.Store(0)
	return k.holdfastContender.lock(ctx)
}

func (k *placedContender) placed() time.Duration { return time.Duration(k.joined.Load()) }
