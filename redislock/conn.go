package redislock

import (
	"context"
	"strings"
	"time"
)

// Conn is what this package needs of a Redis client; packages rueidisconn and goredisconn
// provide it. Its methods may be called concurrently. Once ctx has ended a method sends nothing any more, and
// it returns then, or after a limit of the client's own: a Backend does not wait for that. keys, args and
// calls are the caller's again when a method has returned.
//
// Errors wrap a sentinel of package driver beside their cause: what ServerError says of an
// error reply, ErrUnavailable if nothing was sent, ErrUncertain if no answer came,
// ErrClosed after Close.
type Conn interface {
	// Cluster reports whether this leads to a Cluster: several servers, each of which has the keys
	// of some hash slots. It sends nothing and never changes. The client knows this; an option
	// beside it could only contradict it.
	Cluster() bool

	// Run runs one script: by its hash, and if the server does not know it by its text.
	Run(ctx context.Context, s *Script, keys, args []string) (Value, error)

	// RunAll runs several in one pipeline. The results are those of calls, in order.
	RunAll(ctx context.Context, calls []Call) []Result

	// RunWait runs calls and then WAIT for that many replicas, in one pipeline on one
	// connection that nobody else uses meanwhile: WAIT speaks of what its own connection has
	// written. acked is how many replicas have confirmed all of it within timeout; it is not
	// known if err is not nil. If a call has to be sent again with its text, so is WAIT. The
	// keys of all calls must be on one server; one that has not got their slot answers MOVED or ASK, nothing is done then, and
	// the next try goes to the server that has it, once that is known.
	RunWait(ctx context.Context, calls []Call, replicas int, timeout time.Duration) (results []Result, acked int, err error)

	// Subscribe returns when the server has confirmed the subscription to channel. From
	// then on message is called with every payload, and again with every later
	// confirmation, that is after messages may have been missed. Both are called one at a
	// time and must not block. The subscription lasts until stop is called, across
	// lost connections; after stop has returned neither is called.
	Subscribe(ctx context.Context, channel string, message func(payload string), again func()) (stop func(), err error)

	// SubscribeShard is Subscribe for a sharded channel of a Cluster: at the server that has the slot of
	// the channel's hash tag, and after that has changed at the new one, with a call of again. A
	// server that has no such channels (before Redis 7) refuses it: see NoShards.
	SubscribeShard(ctx context.Context, channel string, message func(payload string), again func()) (stop func(), err error)

	// Close frees what belongs to the Conn. It may be called more than once.
	Close() error
}

// Script is a Lua script.
type Script struct {
	Text string
	SHA1 string // hexadecimal
}

// Call is one script of a pipeline.
type Call struct {
	Script     *Script
	Keys, Args []string
}

// Result is the answer to a Call.
type Result struct {
	Value Value
	Err   error
}

// Value is a script's answer: a number, a text, a list of values, or nothing.
type Value struct {
	Kind ValueKind
	Int  int64
	Text string
	List []Value
}

// ValueKind says which field of a Value counts.
type ValueKind uint8

// The kinds of values.
const (
	Nothing ValueKind = iota
	Int
	Text
	List
)

// NoShards reports whether err is a server's answer that it has no sharded channels.
func NoShards(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "unknown command")
}
