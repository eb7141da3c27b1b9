package redislock

import (
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/internal/hook"
)

func init() {
	hook.RedisEdit = func(b any, edit func(name, text string) string) {
		of := b.(*Backend)
		of.scripts = load(of.cluster, of.member, of.format, edit)
		of.take.script, of.drop.script = of.scripts.take, of.scripts.drop
	}
	hook.RedisScripts = everyScript
	hook.RedisTexts = func(b any) (texts []string) {
		of := b.(*Backend)
		load(of.cluster, of.member, of.format, func(_, text string) string {
			texts = append(texts, text)
			return text
		})
		return texts
	}
	hook.RedisClock = func(b any, now func() time.Duration) { b.(*Backend).now = now }
	hook.RedisListenEarly = func(b any) { b.(*Backend).early = true }
	hook.RedisAnswered = func(b, s, v any) bool { return b.(*Backend).answered(s.(*Script), v.(Value)) }
	hook.RedisCancelMany = func(s any) {
		for i := range 2 * mostCancelled {
			s.(*session).remembers(strconv.Itoa(i), "")
		}
	}
	hook.RedisTagLike = func(tag string) string { return tagIn(slotOf(tag)) }
	hook.RedisShard = shardOf
}

// everyScript returns the text of every script, by deployment and name.
func everyScript() map[string]map[string]string {
	all := map[string]map[string]string{"server": {}, "cluster": {}, "member": {}}
	m := &membership{prefix: "it's \"hf\"\\\n:", quarantine: time.Minute, servers: "0123abcd"}
	for kind, m := range map[string]*membership{"server": nil, "cluster": nil, "member": m} {
		load(kind == "cluster", m, nil, func(name, text string) string {
			all[kind][name] = text
			return text
		})
	}
	return all
}

func (b *Backend) answered(s *Script, v Value) bool {
	switch s {
	case b.scripts.take:
		return v.Int > 0
	case b.scripts.drop:
		return v.Int == 0
	case b.scripts.renew:
		return len(v.List) == 0
	}
	return true
}
