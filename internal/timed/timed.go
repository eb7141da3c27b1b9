// Package timed measures the exchanges with a store.
package timed

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Report receives the end of an exchange: the method of package driver in words, how long it took,
// and its error. It must not block.
type Report func(op string, took time.Duration, err error)

// New returns b, except that each of its exchanges, and of its sessions, is reported when it has
// ended. It is no driver.TxBackend and no driver.Watcher: an exchange of the caller's own
// transaction, and a wait for hints, have no latency of the store to measure.
func New(b driver.Backend, report Report) driver.Backend { return &backend{b, report} }

type backend struct {
	driver.Backend
	report Report
}

// end reports an exchange that began at start. It is deferred, so *err is the result.
func (r Report) end(op string, start time.Time, err *error) { r(op, time.Since(start), *err) }

func (b *backend) Open(ctx context.Context, cfg driver.SessionConfig) (_ driver.Session, err error) {
	defer b.report.end("open", time.Now(), &err)
	s, err := b.Backend.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &session{s, b.report}, nil
}

func (b *backend) List(ctx context.Context, prefix, after string, limit int) (_ []driver.Record, err error) {
	defer b.report.end("list", time.Now(), &err)
	return b.Backend.List(ctx, prefix, after, limit)
}

func (b *backend) Inspect(ctx context.Context, name string) (_ driver.Record, err error) {
	defer b.report.end("inspect", time.Now(), &err)
	return b.Backend.Inspect(ctx, name)
}

func (b *backend) Break(ctx context.Context, name string, token uint64) (err error) {
	defer b.report.end("break", time.Now(), &err)
	return b.Backend.Break(ctx, name, token)
}

func (b *backend) RemoveLatch(ctx context.Context, name string) (err error) {
	defer b.report.end("remove latch", time.Now(), &err)
	return b.Backend.RemoveLatch(ctx, name)
}

func (b *backend) SetLimit(ctx context.Context, name string, limit int) (err error) {
	defer b.report.end("set limit", time.Now(), &err)
	return b.Backend.SetLimit(ctx, name, limit)
}

func (b *backend) AddHistory(ctx context.Context, name, text string, keep int) (err error) {
	defer b.report.end("add history", time.Now(), &err)
	return b.Backend.AddHistory(ctx, name, text, keep)
}

func (b *backend) History(ctx context.Context, name string) (_ []driver.Entry, err error) {
	defer b.report.end("history", time.Now(), &err)
	return b.Backend.History(ctx, name)
}

func (b *backend) WhyMissing(ctx context.Context, name string, held time.Duration) (_ driver.Cause, err error) {
	defer b.report.end("why missing", time.Now(), &err)
	return b.Backend.WhyMissing(ctx, name, held)
}

type session struct {
	driver.Session
	report Report
}

func (s *session) Acquire(ctx context.Context, req *driver.Request) (_ driver.Reply, err error) {
	defer s.report.end("acquire", time.Now(), &err)
	return s.Session.Acquire(ctx, req)
}

func (s *session) Cancel(ctx context.Context, name, id string) (err error) {
	defer s.report.end("cancel", time.Now(), &err)
	return s.Session.Cancel(ctx, name, id)
}

func (s *session) Release(ctx context.Context, h driver.Hold, keep time.Duration) (err error) {
	defer s.report.end("release", time.Now(), &err)
	return s.Session.Release(ctx, h, keep)
}

// Renew is not reported if it renews nothing: most stores then answer without an exchange.
func (s *session) Renew(ctx context.Context, holds []driver.Hold) (_ []driver.Change, err error) {
	if len(holds) > 0 {
		defer s.report.end("renew", time.Now(), &err)
	}
	return s.Session.Renew(ctx, holds)
}

func (s *session) Downgrade(ctx context.Context, h driver.Hold) (err error) {
	defer s.report.end("downgrade", time.Now(), &err)
	return s.Session.Downgrade(ctx, h)
}

func (s *session) Reduce(ctx context.Context, h driver.Hold, n int) (err error) {
	defer s.report.end("reduce", time.Now(), &err)
	return s.Session.Reduce(ctx, h, n)
}

func (s *session) Adopt(ctx context.Context, h driver.Hold, id, info string) (err error) {
	defer s.report.end("adopt", time.Now(), &err)
	return s.Session.Adopt(ctx, h, id, info)
}

func (s *session) SetCount(ctx context.Context, name string, n int64) (_ bool, err error) {
	defer s.report.end("set count", time.Now(), &err)
	return s.Session.SetCount(ctx, name, n)
}

func (s *session) CountDown(ctx context.Context, name, id string) (_ int64, err error) {
	defer s.report.end("count down", time.Now(), &err)
	return s.Session.CountDown(ctx, name, id)
}

func (s *session) Await(ctx context.Context, name, id string) (_ driver.Reply, err error) {
	defer s.report.end("await", time.Now(), &err)
	return s.Session.Await(ctx, name, id)
}

func (s *session) Close(ctx context.Context) (err error) {
	defer s.report.end("close", time.Now(), &err)
	return s.Session.Close(ctx)
}
