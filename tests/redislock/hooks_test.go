package redislock_test

import (
	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
)

// newEdited is redislock.New with the text of every script changed by edit.
func newEdited(conn redislock.Conn, cfg *redislock.Config, edit func(name, text string) string) *redislock.Backend {
	b := redislock.New(conn, cfg)
	hook.RedisEdit(b, edit)
	return b
}

// newFormat is newEdited with Redisson's keys beside the record of each name.
func newFormat(conn redislock.Conn, cfg *redisson.Config, edit func(name, text string) string) *redislock.Backend {
	b := redisson.New(conn, sameRecords(cfg))
	hook.RedisEdit(b, edit)
	return b
}
