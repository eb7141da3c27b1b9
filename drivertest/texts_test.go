package drivertest

import (
	"context"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
)

// brokenTexts are mistakes in how IDs, notes and prefixes are encoded.
var brokenTexts = []broken{
	{name: "IDs of latches that ignore case", rule: "R5", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, count: func(ctx context.Context, name, id string) (int64, error) {
			return s.CountDown(ctx, name, strings.ToLower(id))
		}}
	}},
	{name: "IDs of requests cut", rule: "R5", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			short := *r
			short.ID = r.ID[:min(len(r.ID), 40)]
			return s.Acquire(ctx, &short)
		}}
	}},
	{name: "notes cut", rule: "R9", session: func(s driver.Session) driver.Session {
		return &sabotagedSession{Session: s, acquire: func(ctx context.Context, r *driver.Request) (driver.Reply, error) {
			short := *r
			short.Info = r.Info[:min(len(r.Info), 1<<10)]
			return s.Acquire(ctx, &short)
		}}
	}},
	{name: "prefixes trimmed", rule: "R9", backend: func(b driver.Backend) driver.Backend { return &trimmed{b} }},
}

// trimmed ignores a space at the end of a prefix.
type trimmed struct{ driver.Backend }

func (b *trimmed) List(ctx context.Context, prefix, after string, n int) ([]driver.Record, error) {
	return b.Backend.List(ctx, strings.TrimRight(prefix, " "), after, n)
}
