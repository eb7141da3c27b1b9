package goredisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

var _ redislock.Asker = (*conn)(nil)

// Ask implements redislock.Asker.
func (c *conn) Ask(ctx context.Context, words ...string) []redislock.Answer {
	if err := c.ready(ctx); err != nil {
		return []redislock.Answer{{Err: err}}
	}
	args := make([]any, len(words))
	for i, w := range words {
		args[i] = w
	}
	return c.askAll(ctx, args)
}

func (c *conn) askAll(ctx context.Context, args []any) []redislock.Answer {
	var mu sync.Mutex
	var all []redislock.Answer
	ask := func(ctx context.Context, node *redis.Client) error {
		a := redislock.Answer{Server: node.Options().Addr}
		if a.Server == failover {
			a.Server = "the primary" // the client does not report its address
		}
		cmd := redis.NewCmd(ctx, args...)
		_ = node.Process(ctx, cmd) // cmd has the error
		v, err := cmd.Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			a.Err = c.wrap(err)
		} else {
			a.Value = plain(v)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, a)
		return nil
	}
	var err error
	switch client := c.client.(type) {
	case *redis.Client:
		err = ask(ctx, client)
	case interface {
		ForEachShard(context.Context, func(context.Context, *redis.Client) error) error
	}:
		err = client.ForEachShard(ctx, ask)
	default:
		err = fmt.Errorf("%w client: a %T does not lead to its servers one by one", driver.ErrInvalid, client)
	}
	if err != nil && len(all) == 0 {
		if !errors.Is(err, driver.ErrInvalid) {
			err = c.wrap(err)
		}
		return []redislock.Answer{{Err: err}}
	}
	slices.SortFunc(all, func(a, b redislock.Answer) int { return cmp.Compare(a.Server, b.Server) })
	return all
}

// plain is convert for answers that scripts do not give.
func plain(v any) redislock.Value {
	fields, ok := v.(map[any]any)
	if !ok {
		return convert(v)
	}
	text := make(map[string]any, len(fields))
	for k, f := range fields {
		text[fmt.Sprint(k)] = f
	}
	list := redislock.Value{Kind: redislock.List}
	for _, k := range slices.Sorted(maps.Keys(text)) {
		list.List = append(list.List, redislock.Value{Kind: redislock.Text, Text: k}, plain(text[k]))
	}
	return list
}
