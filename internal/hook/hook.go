// Package hook lets tests in other modules do what a package does not export. The package fills the
// variables. Tests with client libraries cannot be in the module of the package: every program that
// uses the module would resolve those libraries.
package hook

import (
	"context"
	"time"
)

// Hooks of package redislock. A backend is its *Backend, a session one of its sessions.
var (
	// RedisEdit changes the text of every script of a new backend.
	RedisEdit func(backend any, edit func(name, text string) string)
	// RedisScripts returns the text of every script, by deployment and name.
	RedisScripts func() map[string]map[string]string
	// RedisTexts returns the text of every script of a backend.
	RedisTexts func(backend any) []string
	// RedisTagLike returns a hash tag of digits in the slot of another.
	RedisTagLike func(tag string) string
	// RedisClock replaces the clock of the process.
	RedisClock func(backend any, now func() time.Duration)
	// RedisListenEarly makes each Acquire one script, also in a Cluster.
	RedisListenEarly func(backend any)
	// RedisAnswered reports whether the value ends the call that the script was run for. A fast-path
	// script may leave it to another.
	RedisAnswered func(backend, script, value any) bool
	// RedisCancelMany has a session remember as many cancelled requests as it can.
	RedisCancelMany func(session any)
	// RedisShard returns the shard of a name.
	RedisShard func(name string) int
)

// Hooks of package sqllock. A server is its *Server.
var (
	// SQLSweep performs one step of the sweep, for names idle for so long.
	SQLSweep func(ctx context.Context, server any, cursor []byte, idle time.Duration) (next []byte, err error)
	// SQLSweepHistories performs one sweep of histories whose last entry is older than life.
	SQLSweepHistories func(ctx context.Context, server any, cursor []byte, life time.Duration) (next []byte, err error)
	// SQLRemembered counts the requests in a server's memory.
	SQLRemembered func(server any) int
	// SQLSocket returns the *samehost.Socket of a server.
	SQLSocket func(server any) any
	// SQLServerID returns the ID of a server.
	SQLServerID func(server any) string
	// SQLTell makes a server send a grant to another's socket, and reports whether that took it.
	SQLTell func(server any, to, name, id string, token uint64) bool
	// SQLSocketIn moves the socket of a server that has not been used yet to another folder.
	SQLSocketIn func(server any, dir string)
)

// QuorumDescribe shows what a session of package quorum knows of its requests.
var QuorumDescribe func(session any) string
