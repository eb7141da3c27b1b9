package rueidisconn

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/redislock"
)

var _ redislock.SentinelAsker = (*conn)(nil)

// Ask implements redislock.Asker. Each answer comes before redial closes its connection: a caller that
// was refused by a replica asks it for its primary at that moment.
func (c *conn) Ask(ctx context.Context, words ...string) []redislock.Answer {
	err := c.ready(ctx)
	if err == nil {
		err = c.connections.begin(ctx)
	}
	if err != nil {
		return []redislock.Answer{{Err: err}}
	}
	defer c.connections.end()
	return c.askAll(ctx, c.client.Nodes(), words)
}

func (c *conn) askAll(ctx context.Context, nodes map[string]rueidis.Client, words []string) (all []redislock.Answer) {
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		node := nodes[addr]
		a := redislock.Answer{Server: addr}
		m, err := node.Do(ctx, node.B().Arbitrary(words...).Build()).ToMessage()
		if err != nil && !rueidis.IsRedisNil(err) {
			a.Err = c.wrap(err)
		} else {
			a.Value, a.Err = plain(&m)
		}
		all = append(all, a)
	}
	return all
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
	nodes  map[string]rueidis.Client // nil before the first Ask
	silent []redislock.Answer        // of those that could not be reached
	closed bool
}

// Ask implements redislock.Asker.
func (s *sentinels) Ask(ctx context.Context, words ...string) []redislock.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if s.nodes == nil {
		s.nodes = map[string]rueidis.Client{}
		for _, opt := range s.conn.watchers {
			addr := opt.InitAddress[0]
			client, err := rueidis.NewClient(opt)
			if err != nil {
				s.silent = append(s.silent, redislock.Answer{Server: addr, Err: s.conn.wrap(err)})
				continue
			}
			s.nodes[addr] = client
		}
	}
	return append(s.conn.askAll(ctx, s.nodes, words), s.silent...)
}

func (s *sentinels) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, client := range s.nodes {
		client.Close()
	}
}
