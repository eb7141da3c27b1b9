package main

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

const oursQuorum = "holdfast-quorum"

func quorumLibraries() []library {
	return []library{
		{name: "redsync", waits: true, open: openRedsyncQuorum()},
		{name: "redsync-1ms", waits: true, open: openRedsyncQuorum(redsync.WithRetryDelay(time.Millisecond),
			redsync.WithTries(math.MaxInt))},
		{name: oursQuorum, waits: true, open: openQuorum},
	}
}

func openRedsyncQuorum(opts ...redsync.Option) func(context.Context, site) (client, error) {
	return func(_ context.Context, at site) (client, error) {
		var pools []redsyncredis.Pool
		var ends []func() error
		for _, addr := range at.addrs {
			c := at.wire.goredisClient(addr)
			pools, ends = append(pools, redsyncgoredis.NewPool(c)), append(ends, c.Close)
		}
		return &redsyncClient{rs: redsync.New(pools...), opts: opts, end: func() error { return closeAll(ends) }}, nil
	}
}

func closeAll(ends []func() error) (err error) {
	for _, end := range ends {
		err = errors.Join(err, end())
	}
	return err
}

// openQuorum dials as rueidisconn.Dial does, which cannot count commands.
func openQuorum(ctx context.Context, at site) (client, error) {
	var servers []quorum.Server
	for _, addr := range at.addrs {
		servers = append(servers, quorum.Server{Name: addr, Dial: func(context.Context) (redislock.Conn, error) {
			c, err := countedClient(at.wire, addr)
			if err != nil {
				return nil, err
			}
			return closingConn{rueidisconn.New(c), c}, nil
		}})
	}
	backend := quorum.New(servers, nil)
	if err := backend.Declare(ctx); err != nil { // the servers have been emptied
		return nil, errors.Join(err, backend.Close())
	}
	return openHoldfast(ctx, backend, at)
}

// closingConn closes its client with it.
type closingConn struct {
	redislock.Conn
	c rueidis.Client
}

func (c closingConn) Close() error {
	err := c.Conn.Close()
	c.c.Close()
	return err
}
