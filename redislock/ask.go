package redislock

import "context"

// Asker is an optional interface of a Conn. It sends commands other than scripts, such as INFO or
// CONFIG GET. The Conns of packages rueidisconn and goredisconn are Askers.
type Asker interface {
	// AskAll sends commands, each word by word, in one pipeline to each of servers. If servers is nil,
	// it sends them to every server that the Conn leads to: one for a single server, or for a primary
	// behind sentinels. For a Cluster it is each server that the client knows, primaries and replicas.
	// The servers are asked at the same time. Each command must have one answer and must not change
	// the state of a connection. Without commands AskAll finds the servers and sends nothing.
	//
	// It returns the answers in the order of Server, and leaves out those of servers to which the Conn
	// does not lead. If there is no server to ask, it returns one Answers with no Server, and an error in
	// each Result. AskAll returns when ctx ends. Errors: those of Conn.Run, for each server.
	AskAll(ctx context.Context, servers []string, commands ...[]string) []Answers
}

// Ask is AskAll of asker for one command, word by word, to every server.
func Ask(ctx context.Context, asker Asker, words ...string) []Answer {
	return first(asker.AskAll(ctx, nil, words))
}

// first returns the answers to the first command.
func first(all []Answers) []Answer {
	answers := make([]Answer, len(all))
	for i, a := range all {
		answers[i] = Answer{a.Server, a.Results[0].Value, a.Results[0].Err}
	}
	return answers
}

// Answers are the answers of one server, in the order of the commands. A map in a Value is a list of
// keys and values in turn.
type Answers struct {
	Server  string // host:port, or the path of a socket
	Results []Result
}

// Answer is the answer of one server to one command: see Answers.
type Answer struct {
	Server string
	Value  Value
	Err    error
}
