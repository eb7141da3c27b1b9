package main

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// The floor: only the commands that any lock at the server must send. No waiting, no renewal, no
// token.

var (
	rawRueidis = library{name: "raw-rueidis", open: func(_ context.Context, at site) (client, error) {
		c, err := rueidis.NewClient(at.wire.rueidisOption(at.addr))
		if err != nil {
			return nil, err
		}
		return rawRueidisClient{c}, nil
	}}
	rawGoredis = library{name: "raw-goredis", open: func(_ context.Context, at site) (client, error) {
		return rawGoredisClient{at.wire.goredisClient(at.addr)}, nil
	}}
)

const (
	rawTTL    = 15 * time.Second
	rawDelete = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`
)

var (
	errBusy    = errors.New("the name is taken")
	errNotOurs = errors.New("the lock was lost")
)

type rawRueidisClient struct{ c rueidis.Client }

func (c rawRueidisClient) contender(name string) contender {
	return &rawRueidisContender{c: c.c, keys: []string{name}, args: []string{rand.Text()}}
}

func (c rawRueidisClient) hold(context.Context, string) error { return errors.ErrUnsupported }

func (c rawRueidisClient) close() error { c.c.Close(); return nil }

var rawScript = rueidis.NewLuaScript(rawDelete)

type rawRueidisContender struct {
	c          rueidis.Client
	keys, args []string
}

func (k *rawRueidisContender) lock(ctx context.Context) error {
	err := k.c.Do(ctx, k.c.B().Set().Key(k.keys[0]).Value(k.args[0]).Nx().Px(rawTTL).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return errBusy
	}
	return err
}

func (k *rawRueidisContender) unlock() error {
	n, err := rawScript.Exec(context.Background(), k.c, k.keys, k.args).AsInt64()
	if err == nil && n != 1 {
		return errNotOurs
	}
	return err
}

type rawGoredisClient struct{ c *goredis.Client }

func (c rawGoredisClient) contender(name string) contender {
	return &rawGoredisContender{c: c.c, keys: []string{name}, value: rand.Text()}
}

func (c rawGoredisClient) hold(context.Context, string) error { return errors.ErrUnsupported }

func (c rawGoredisClient) close() error { return c.c.Close() }

var rawGoredisScript = goredis.NewScript(rawDelete)

type rawGoredisContender struct {
	c     *goredis.Client
	keys  []string
	value string
}

func (k *rawGoredisContender) lock(ctx context.Context) error {
	err := k.c.SetArgs(ctx, k.keys[0], k.value, goredis.SetArgs{Mode: "NX", TTL: rawTTL}).Err()
	if errors.Is(err, goredis.Nil) {
		return errBusy
	}
	return err
}

func (k *rawGoredisContender) unlock() error {
	n, err := rawGoredisScript.Run(context.Background(), k.c, k.keys, k.value).Int()
	if err == nil && n != 1 {
		return errNotOurs
	}
	return err
}
