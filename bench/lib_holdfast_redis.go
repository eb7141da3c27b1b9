package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/goredisconn"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

var (
	holdfastRueidis = library{name: "holdfast-rueidis", waits: true,
		open: func(ctx context.Context, at site) (client, error) {
			backend, err := rueidisBackend(at)
			if err != nil {
				return nil, err
			}
			return openHoldfast(ctx, backend, at)
		}}
	holdfastGoredis = library{name: "holdfast-goredis", waits: true,
		open: func(ctx context.Context, at site) (client, error) {
			c := at.wire.goredisClient(at.addr)
			return openHoldfast(ctx, closing{redislock.New(goredisconn.New(c), nil), c.Close}, at)
		}}
	holdfastSticky = library{name: "holdfast-sticky", waits: true, sticky: true,
		open: func(ctx context.Context, at site) (client, error) {
			backend, err := rueidisBackend(at)
			if err != nil {
				return nil, err
			}
			return openHoldfast(ctx, backend, at, holdfast.Sticky(time.Minute))
		}}
)

// rueidisBackend is like the backend of rueidisconn.Dial, which cannot count commands.
func rueidisBackend(at site) (driver.Backend, error) {
	c, err := countedClient(at.wire, at.addr)
	if err != nil {
		return nil, err
	}
	return closing{redislock.New(rueidisconn.New(c), nil), func() error { c.Close(); return nil }}, nil
}

func countedClient(w *wire, addr string) (rueidis.Client, error) {
	option := w.rueidisOption(addr)
	option.ForceSingleClient, option.DisableRetry, option.DisableCache = true, true, true
	option.PipelineMultiplex = -1
	option.ReadBufferEachConn, option.WriteBufferEachConn = 64<<10, 64<<10
	return rueidis.NewClient(option)
}

// closing is a backend with a connection that its own Close does not close.
type closing struct {
	driver.Backend
	end func() error
}

func (b closing) Close() error { return errors.Join(b.Backend.Close(), b.end()) }
