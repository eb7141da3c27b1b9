package rueidisconn

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/internal/asking"
)

var _ redislock.SentinelAsker = (*conn)(nil)

// AskAll implements redislock.Asker. Each answer comes before redial closes its connection: a caller that
// was refused by a replica asks it for its primary at that moment.
func (c *conn) AskAll(ctx context.Context, servers []string, commands ...[]string) []redislock.Answers {
	err := c.ready(ctx)
	if err == nil {
		err = c.connections.begin(ctx)
	}
	if err != nil {
		return asking.Nobody(len(commands), err)
	}
	defer c.connections.end()
	return asking.Each(c.client.Nodes(), servers, len(commands), func(node rueidis.Client) []redislock.Result {
		return c.ask(ctx, node, commands)
	})
}

func (c *conn) ask(ctx context.Context, node rueidis.Client, commands [][]string) []redislock.Result {
	cmds := make(rueidis.Commands, len(commands))
	for i, words := range commands {
		cmds[i] = node.B().Arbitrary(words...).Build()
	}
	results := make([]redislock.Result, len(commands))
	for i, r := range node.DoMulti(ctx, cmds...) {
		m, err := r.ToMessage()
		if err != nil && !rueidis.IsRedisNil(err) {
			results[i].Err = c.wrap(err)
		} else {
			results[i].Value, results[i].Err = plain(&m)
		}
	}
	return results
}

// plain is convert for answers that scripts do not give.
func plain(m *rueidis.RedisMessage) (redislock.Value, error) {
	switch {
	case m.IsMap():
		v := redislock.Value{Kind: redislock.List}
		fields, err := m.ToMap()
		for _, k := range slices.Sorted(maps.Keys(fields)) {
			f := fields[k]
			value, ferr := plain(&f)
			if ferr != nil {
				err = ferr
			}
			v.List = append(v.List, redislock.Value{Kind: redislock.Text, Text: k}, value)
		}
		return v, err
	case m.IsInt64(), m.IsArray(), m.IsNil():
		return convert(m)
	}
	s, err := m.ToString()
	if !m.IsString() && len(s) > 3 && s[3] == ':' { // a verbatim string begins with its format, such as txt
		s = s[4:]
	}
	return redislock.Value{Kind: redislock.Text, Text: s}, err
}

// Sentinels implements redislock.SentinelAsker. Only a Conn made by Dial knows its sentinels.
func (c *conn) Sentinels() (redislock.Asker, func()) {
	if len(c.watchers) == 0 {
		return nil, nil
	}
	s := &sentinels{conn: c}
	return s, s.close
}

// watchersOf returns the options of a client for each sentinel that opt names.
func watchersOf(opt rueidis.ClientOption) (all []rueidis.ClientOption) {
	if opt.Sentinel.MasterSet == "" {
		return nil
	}
	for _, addr := range opt.InitAddress {
		one := opt
		one.InitAddress, one.SelectDB, one.Sentinel = []string{addr}, 0, rueidis.SentinelOption{}
		one.Username, one.Password = opt.Sentinel.Username, opt.Sentinel.Password
		one.Dialer, one.TLSConfig = opt.Sentinel.Dialer, opt.Sentinel.TLSConfig
		all = append(all, one)
	}
	return all
}

// sentinels asks the sentinels of a Conn, with its own connections.
type sentinels struct {
	conn   *conn
	mu     sync.Mutex
	nodes  map[string]sentinel // nil before the first question
	closed bool
}

type sentinel struct {
	client rueidis.Client
	err    error // why there is none
}

// AskAll implements redislock.Asker.
func (s *sentinels) AskAll(ctx context.Context, servers []string, commands ...[]string) []redislock.Answers {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return asking.Nobody(len(commands), driver.ErrClosed)
	}
	if s.nodes == nil {
		s.nodes = map[string]sentinel{}
		for _, opt := range s.conn.watchers {
			client, err := rueidis.NewClient(opt)
			if err != nil {
				err = s.conn.wrap(err)
			}
			s.nodes[opt.InitAddress[0]] = sentinel{client, err}
		}
	}
	return asking.Each(s.nodes, servers, len(commands), func(one sentinel) []redislock.Result {
		if one.err != nil {
			return asking.Failed(len(commands), one.err)
		}
		return s.conn.ask(ctx, one.client, commands)
	})
}

func (s *sentinels) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, one := range s.nodes {
		if one.err == nil {
			one.client.Close()
		}
	}
}
