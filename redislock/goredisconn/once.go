package goredisconn

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// once is a command that the client sends once. By default go-redis repeats, on another connection, what is not
// answered within its ReadTimeout, and tells nobody. The first copy may then reach the server when the lock has been
// released already, and take it for nobody. Our callers repeat requests themselves, and cancel what they leave.
//
// The client still repeats what no server has done: it dials again, and follows MOVED, ASK and READONLY in a Cluster.
type once struct{ *redis.Cmd }

func command(ctx context.Context, words []any) once { return once{redis.NewCmd(ctx, words...)} }

// NoRetry is redis.Cmder's.
func (once) NoRetry() bool { return true }
