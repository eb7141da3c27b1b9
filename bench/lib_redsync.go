package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"
)

var (
	redsyncDefault = library{name: "redsync", waits: true, open: openRedsync()}
	redsync1ms     = library{name: "redsync-1ms", waits: true,
		open: openRedsync(redsync.WithRetryDelay(time.Millisecond), redsync.WithTries(math.MaxInt))}
	redsyncRueidis = library{name: "redsync-rueidis", waits: true, open: func(_ context.Context, at site) (client, error) {
		c, err := rueidis.NewClient(at.wire.rueidisOption(at.addr))
		if err != nil {
			return nil, err
		}
		return &redsyncClient{rs: redsync.New(rueidisPool{c}), end: func() error { c.Close(); return nil }}, nil
	}}
)

func openRedsync(opts ...redsync.Option) func(context.Context, site) (client, error) {
	return func(_ context.Context, at site) (client, error) {
		c := at.wire.goredisClient(at.addr)
		return &redsyncClient{rs: redsync.New(redsyncgoredis.NewPool(c)), opts: opts, end: c.Close}, nil
	}
}

type redsyncClient struct {
	rs   *redsync.Redsync
	opts []redsync.Option
	end  func() error
}

func (c *redsyncClient) contender(name string) contender {
	return &redsyncContender{c: c, name: name}
}

// hold: redsync renews no lock and its README shows no way to.
func (c *redsyncClient) hold(context.Context, string) error { return errors.ErrUnsupported }

func (c *redsyncClient) close() error { return c.end() }

type redsyncContender struct {
	c    *redsyncClient
	name string
	m    *redsync.Mutex
}

func (k *redsyncContender) lock(ctx context.Context) error {
	k.m = k.c.rs.NewMutex(k.name, k.c.opts...)
	err := k.m.LockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		return errGaveUp
	}
	return err
}

func (k *redsyncContender) unlock() error {
	ok, err := k.m.Unlock()
	if err == nil && !ok {
		return errNotOurs
	}
	return err
}

// rueidisPool lets redsync run on rueidis without the compatibility layer of redsync's own pool,
// and costs less.
type rueidisPool struct{ c rueidis.Client }

func (p rueidisPool) Get(ctx context.Context) (redsyncredis.Conn, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	return &rueidisConn{p.c, ctx}, nil
}

type rueidisConn struct {
	c   rueidis.Client
	ctx context.Context
}

func (c *rueidisConn) Get(name string) (string, error) {
	s, err := c.c.Do(c.ctx, c.c.B().Get().Key(name).Build()).ToString()
	return s, notNil(err)
}

func (c *rueidisConn) Set(name, value string) (bool, error) {
	err := c.c.Do(c.ctx, c.c.B().Set().Key(name).Value(value).Build()).Error()
	return err == nil, err
}

func (c *rueidisConn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	err := c.c.Do(c.ctx, c.c.B().Set().Key(name).Value(value).Nx().Px(expiry).Build()).Error()
	return err == nil, notNil(err)
}

func (c *rueidisConn) PTTL(name string) (time.Duration, error) {
	ms, err := c.c.Do(c.ctx, c.c.B().Pttl().Key(name).Build()).AsInt64()
	return time.Duration(ms) * time.Millisecond, err
}

func (c *rueidisConn) Eval(script *redsyncredis.Script, keysAndArgs ...any) (any, error) {
	text := make([]string, len(keysAndArgs))
	for i, a := range keysAndArgs {
		text[i] = redisArg(a)
	}
	keys, args := text[:script.KeyCount], text[script.KeyCount:]
	v, err := c.c.Do(c.ctx, c.c.B().Evalsha().Sha1(script.Hash).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).
		Build()).ToAny()
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		v, err = c.c.Do(c.ctx, c.c.B().Eval().Script(script.Src).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).
			ToAny()
	}
	return v, notNil(err)
}

func (c *rueidisConn) ScriptLoad(script *redsyncredis.Script) error {
	sha, err := c.c.Do(c.ctx, c.c.B().ScriptLoad().Script(script.Src).Build()).ToString()
	if err == nil {
		script.Hash = sha
	}
	return err
}

func (c *rueidisConn) Close() error { return nil }

func notNil(err error) error {
	if rueidis.IsRedisNil(err) {
		return nil
	}
	return err
}

// redisArg returns a script argument as redsync sends it: strings and milliseconds.
func redisArg(a any) string {
	switch a := a.(type) {
	case string:
		return a
	case int:
		return strconv.Itoa(a)
	case int64:
		return strconv.FormatInt(a, 10)
	default:
		return fmt.Sprint(a)
	}
}
