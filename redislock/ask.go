package redislock

import "context"

// Asker is an optional interface of a Conn. It sends commands other than scripts, such as INFO or
// CONFIG GET. The Conns of packages rueidisconn and goredisconn are Askers.
type Asker interface {
	// Ask sends one command, word by word, to every server that the Conn leads to. It returns the
	// answers in the order of Server: one for a single server, or for a primary behind sentinels.
	// For a Cluster it returns one for each server that the client knows, primaries and replicas. The
	// command must have one answer and must not change the state of a connection.
	//
	// Ask returns when ctx ends. Errors: those of Conn.Run, for each server.
	Ask(ctx context.Context, words ...string) []Answer
}

// Answer is the answer of one server. A map in Value is a list of keys and values in turn.
type Answer struct {
	Server string // host:port, or the path of a socket
	Value  Value
	Err    error
}
