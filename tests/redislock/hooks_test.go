package redislock_test

import (
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/redislock"
)

// newEdited is redislock.New with the text of every script changed by edit.
func newEdited(conn redislock.Conn, cfg *redislock.Config, edit func(name, text string) string) *redislock.Backend {
	return hook.RedisEdited(conn, cfg, edit).(*redislock.Backend)
}
