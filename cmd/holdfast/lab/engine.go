package lab

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Store is a kind of server.
type Store string

// Redis is the store of most rows.
const Redis Store = "redis"

// engine is a kind of server as the lab uses it. It belongs to one part of a row.
type engine interface {
	// session returns a new connection of a client, which speaks the store's own commands.
	session(c *client) (session, error)

	// pass lets d pass at the server: it shortens the leases there. It returns how many have ended.
	pass(p *scenario, d time.Duration) (ended int)

	// look returns the lock at the server, in words.
	look(p *scenario) string

	// backend returns the store for one program that uses holdfast with this TTL, and the network in
	// between.
	backend(p *scenario, ttl time.Duration) (driver.Backend, network)
}

// session is one connection of a client of an algorithm.
type session interface {
	// send sends a command. An error is one of the connection; what the server refuses is an answer
	// that begins with "error".
	send(ctx context.Context, command string) (answer string, err error)

	// blocked returns when the server keeps the last command waiting. ctx ends with the answer; then its
	// cause is the error.
	blocked(ctx context.Context) error

	// set changes the network of the connection.
	set(mode linkMode)
}

// network is the network between one program that uses holdfast and its server.
type network interface {
	set(mode linkMode)
	current() linkMode
	heal() // ends any fault; withheld requests arrive now
	Close() error
}
