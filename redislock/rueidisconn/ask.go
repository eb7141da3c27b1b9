package rueidisconn

import (
	"context"
	"maps"
	"slices"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/redislock"
)

var _ redislock.Asker = (*conn)(nil)

// Ask is redislock.Asker's.
func (c *conn) Ask(ctx context.Context, words ...string) []redislock.Answer {
	if err := c.ready(ctx); err != nil {
		return []redislock.Answer{{Err: err}}
	}
	nodes := c.client.Nodes()
	var all []redislock.Answer
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
