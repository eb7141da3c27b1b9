package goredisconn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/internal/asking"
)

var _ redislock.Asker = (*conn)(nil)

// AskAll implements redislock.Asker.
func (c *conn) AskAll(ctx context.Context, servers []string, commands ...[]string) []redislock.Answers {
	err := c.ready(ctx)
	var nodes map[string]*redis.Client
	if err == nil {
		nodes, err = c.nodes(ctx, servers)
	}
	if err != nil {
		return asking.Nobody(len(commands), err)
	}
	return asking.Each(nodes, servers, len(commands), func(node *redis.Client) []redislock.Result {
		return c.ask(ctx, node, commands)
	})
}

func (c *conn) ask(ctx context.Context, node *redis.Client, commands [][]string) []redislock.Result {
	pipe, cmds := node.Pipeline(), make([]*redis.Cmd, len(commands))
	for i, words := range commands {
		args := make([]any, len(words))
		for j, w := range words {
			args[j] = w
		}
		cmds[i] = redis.NewCmd(ctx, args...)
		_ = pipe.Process(ctx, cmds[i]) // it only queues
	}
	_, _ = pipe.Exec(ctx) // each cmd has its error
	results := make([]redislock.Result, len(cmds))
	for i, cmd := range cmds {
		v, err := cmd.Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			results[i].Err = c.wrap(err)
		} else {
			results[i].Value = plain(v)
		}
	}
	return results
}

// nodes returns the clients of all servers, by the names of the servers. If a caller wants certain
// servers, those that were found by an earlier call are good. To find them again, the client asks a
// random server, which may be one that does not answer.
func (c *conn) nodes(ctx context.Context, servers []string) (map[string]*redis.Client, error) {
	known := c.known.Load()
	if known != nil && servers != nil &&
		!slices.ContainsFunc(servers, func(server string) bool { return (*known)[server] == nil }) {
		return *known, nil
	}
	var mu sync.Mutex
	nodes := map[string]*redis.Client{}
	found := func(_ context.Context, node *redis.Client) error {
		server := node.Options().Addr
		if server == failover {
			server = "the primary" // the client does not report its address
		}
		mu.Lock()
		defer mu.Unlock()
		nodes[server] = node
		return nil
	}
	var err error
	switch client := c.client.(type) {
	case *redis.Client:
		err = found(ctx, client)
	case interface {
		ForEachShard(context.Context, func(context.Context, *redis.Client) error) error
	}:
		if err = client.ForEachShard(ctx, found); err != nil {
			err = c.wrap(err)
		}
	default:
		err = fmt.Errorf("%w client: a %T does not lead to its servers one by one", driver.ErrInvalid, client)
	}
	if err == nil {
		c.known.Store(&nodes)
	}
	return nodes, err
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
