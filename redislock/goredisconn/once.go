package goredisconn

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// once is a command that the client sends once. By default go-redis silently repeats a command
// without an answer within its ReadTimeout, on another connection. The first copy may then reach
// the server after the lock was released, and take it again without an owner. The callers here
// repeat requests themselves, and cancel abandoned ones.
//
// The client still repeats what no server has done: it reconnects, and follows MOVED, ASK and
// READONLY in a Cluster.
type once struct{ *redis.Cmd }

func command(ctx context.Context, words []any) once { return once{redis.NewCmd(ctx, words...)} }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }
