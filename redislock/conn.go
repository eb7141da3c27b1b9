package redislock

import (
	"context"
	"strings"
	"time"
)

// Conn is what this package needs of a Redis client. Packages rueidisconn and goredisconn implement
// it. Its methods may be called concurrently. Once ctx has ended, a method sends nothing more. It
// returns then or after the client's own time limit: a Backend does not wait for it. keys, args and
// calls belong to the caller again when a method has returned.
//
// Errors wrap a sentinel of package driver and their cause. For an error reply they are what
// ServerError returns. Otherwise they are ErrUnavailable if nothing was sent, ErrUncertain if no
// answer came, and ErrClosed after Close.
type Conn interface {
	// Cluster reports whether this leads to a Cluster: several servers, each with the keys of some
	// hash slots. It sends nothing and never changes.
	Cluster() bool

	// Run runs one script by its hash, or by its text if the server does not know the hash.
	Run(ctx context.Context, s *Script, keys, args []string) (Value, error)

	// RunAll runs several scripts in one pipeline. The results are in the order of calls.
	RunAll(ctx context.Context, calls []Call) []Result

	// RunWait runs calls and then WAIT for that many replicas, in one pipeline on one connection of
	// its own: WAIT covers what its own connection has written. acked is how many replicas have
	// confirmed all of it within timeout; ignore acked if err is not nil. If a call has to be sent
	// again with its text, RunWait sends WAIT again too. The keys of all calls must be on one
	// server. A server without their slot answers MOVED or ASK and does nothing. The next try goes
	// to the right server, once the client knows it.
	RunWait(ctx context.Context, calls []Call, replicas int, timeout time.Duration) (results []Result, acked int,
		err error)

	// Subscribe returns when the server has confirmed the subscription to channel. From then on it
	// calls message with every payload, and again after every later confirmation, because messages
	// may have been missed before it. Both are called one at a time and must not block. The
	// subscription survives lost connections and ends with stop. After stop has returned, neither
	// is called.
	Subscribe(ctx context.Context, channel string, message func(payload string), again func()) (stop func(), err error)

	// SubscribeShard is Subscribe for a sharded channel of a Cluster, at the server with the slot
	// of the channel's hash tag. If the slot moves, it subscribes at the new server and calls
	// again. Servers before Redis 7 have no sharded channels and refuse it: see NoShards.
	SubscribeShard(ctx context.Context, channel string, message func(payload string), again func()) (stop func(),
		err error)

	// Close frees what belongs to the Conn. It may be called more than once.
	Close() error
}

// ManySubscriber is an optional interface of a Conn, for a Format. With a Format a session listens to
// a channel for each name that it waits for, and for each that it has held for a while. If the Conn is
// no ManySubscriber, each name that it waits for needs a connection, and holders do not listen.
type ManySubscriber interface {
	// SubscribeMany is Conn.Subscribe or Conn.SubscribeShard for one of many channels. They have no
	// connections of their own.
	SubscribeMany(ctx context.Context, channel Channel) (stop func(), err error)
}

// Channel is what SubscribeMany subscribes to.
type Channel struct {
	Name    string
	Sharded bool                 // it is a sharded channel of a Cluster: see Conn.SubscribeShard
	Message func(payload string) // see Conn.Subscribe
	Again   func()               // see Conn.Subscribe

	// Waited reports whether anybody waits for messages; nil: always. If nobody does, a subscription that
	// stays at a server that is no primary any more does little harm. So the Conn checks that less often.
	Waited func() bool
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

// ValueKind says which field of a Value is set.
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
