package fence

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// Eval runs a Lua script at a Redis server and returns its answer. These are Evals of two clients:
//
//	func(ctx context.Context, script string, keys, args []string) (any, error) { // go-redis
//		return client.Eval(ctx, script, keys, args).Result()
//	}
//	func(ctx context.Context, script string, keys, args []string) (any, error) { // rueidis
//		eval := client.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(args...)
//		return client.Do(ctx, eval.Build()).ToAny()
//	}
//
// Some clients send a command again whose answer was lost, and it may then run twice. An Eval of
// such a client should say that it must not (go-redis: MaxRetries -1).
type Eval func(ctx context.Context, script string, keys, args []string) (any, error)

// Redis is a guard of keys in Redis 5 and later: commands run only under a token that is not stale.
// It is safe for concurrent use.
type Redis struct {
	Eval Eval

	// Key holds the largest token. It belongs to the resource like its data: whatever removes the
	// key (expiry, eviction, a failover that loses it) forgets the token.
	Key string

	// Keys are the keys that commands use. In a Cluster they and Key must be in one slot: give all
	// of them the same hash tag, as in "stock:{42}:count" and "stock:{42}:fence".
	Keys []string
}

// redisScript compares tokens as texts, because Lua's numbers are exact only up to 2^53. The token is
// the first write: a server that refuses writes refuses it, and then no command has run.
const redisScript = `local seen, token = redis.call('GET', KEYS[1]), ARGV[1]
if seen and not string.find(seen, '^[1-9]%d*$') then
	return redis.error_reply('ERR fence: the key ' .. KEYS[1] .. ' holds no token')
end
if seen and (#seen > #token or #seen == #token and seen > token) then
	return {0, seen}
end
if seen ~= token then
	redis.call('SET', KEYS[1], token)
end
local answers, at = {1}, 2
while at <= #ARGV do
	local words = tonumber(ARGV[at])
	answers[#answers + 1] = redis.call(unpack(ARGV, at + 1, at + words))
	at = at + words + 1
end
return answers`

// Do raises the token to token and runs the commands, all in one step: no other client's command
// comes in between. A larger token that has been here before makes it fail with ErrStale, and no
// command runs. An equal token is allowed, so a holder may call Do often.
//
// A holder that reads, computes and writes reads by Do, too: the read raises the token, so that an
// older holder can no longer write between the read and the write. Only commands that go through Do
// are guarded.
//
// Do returns the answers in the order of the commands, as the Eval returns them. If a command fails,
// those before it have run, as Redis undoes nothing; the error is Redis's own. If the answer is
// lost, the commands may have run. Other errors: ErrInvalid, ctx's and the client's.
func (r *Redis) Do(ctx context.Context, token uint64, commands ...[]string) ([]any, error) {
	if err := r.check(token, commands); err != nil {
		return nil, err
	}
	args := []string{strconv.FormatUint(token, 10)}
	for _, c := range commands {
		args = append(append(args, strconv.Itoa(len(c))), c...)
	}
	got, err := r.Eval(ctx, redisScript, append([]string{r.Key}, r.Keys...), args)
	if err != nil {
		return nil, fmt.Errorf("fence: %q: %w", r.Key, err)
	}
	answers, _ := got.([]any)
	switch {
	case len(answers) == len(commands)+1 && answers[0] == int64(1):
		return answers[1:], nil
	case len(answers) == 2 && answers[0] == int64(0):
		return nil, fmt.Errorf("fence: %q: %w: %d is smaller than %v", r.Key, ErrStale, token, answers[1])
	}
	return nil, fmt.Errorf("fence: %q: the server's answer makes no sense: %.200s", r.Key, fmt.Sprint(got))
}

func (r *Redis) check(token uint64, commands [][]string) error {
	if r == nil || r.Eval == nil || r.Key == "" {
		return fmt.Errorf("fence: %w guard: it needs an Eval and a Key", ErrInvalid)
	}
	if slices.Contains(r.Keys, r.Key) {
		return fmt.Errorf("fence: %w guard: %q is the key of the token and of data", ErrInvalid, r.Key)
	}
	if slices.ContainsFunc(commands, func(c []string) bool { return len(c) == 0 }) {
		return fmt.Errorf("fence: %q: %w command: it is empty", r.Key, ErrInvalid)
	}
	return checkToken(token)
}
