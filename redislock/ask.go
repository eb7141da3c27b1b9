package redislock

import "context"

// Asker is what a Conn may be beside: it asks servers what is no script's business, such as INFO or
// CONFIG GET. The Conns of packages rueidisconn and goredisconn are Askers.
type Asker interface {
	// Ask sends one command, word by word, to every server that the Conn leads to, and returns what each
	// answered, in order of Server: one answer for a single server, or a primary behind sentinels; one for each
	// primary of a Cluster, and for its replicas if the client reads from them. The command has to be one that is answered
	// once and belongs to no connection.
	//
	// It ends when ctx does. Errors are those of Conn.Run, one for each server.
	Ask(ctx context.Context, words ...string) []Answer
}

// Answer is what one server said. In its Value a map is a list of keys and values in turn.
type Answer struct {
	Server string // host:port, or the path of a socket
	Value  Value
	Err    error
}
