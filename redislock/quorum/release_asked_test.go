package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// lostQuestion is a server that grants the first question and answers it after a time, or never. It refuses the first
// release, also after a time.
type lostQuestion struct {
	member
	asks, releases    atomic.Int32
	answer, releaseIn time.Duration
}

func (m *lostQuestion) Ask(ctx context.Context, req *driver.Request, propose uint64) (driver.Reply, uint64, error) {
	reply, place, err := m.member.Ask(ctx, req, propose)
	switch {
	case m.asks.Add(1) > 1:
	case m.answer == 0:
		<-ctx.Done()
		return driver.Reply{}, 0, driver.ErrUncertain
	default:
		time.Sleep(m.answer)
	}
	return reply, place, err
}

func (m *lostQuestion) Pass(ctx context.Context, h driver.Hold, keep time.Duration, propose uint64) error {
	if m.releases.Add(1) == 1 {
		time.Sleep(m.releaseIn)
		return driver.ErrRefused
	}
	return m.member.Pass(ctx, h, keep, propose)
}

// TestQuestionsBesideARefusedRelease: each server has granted a request twice, and the first answers are lost or come
// during the release, or after it. All servers refuse the release. Its caller repeats it, before the session cancels
// anything.
func TestQuestionsBesideARefusedRelease(t *testing.T) {
	for name, c := range map[string][2]time.Duration{
		"lost": {0, 0}, "late": {1500 * time.Millisecond, 2 * time.Second}, "later": {1500 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := three(t)
				s.noteContended("x", 0)
				for _, p := range s.endpoints {
					put(p, &lostQuestion{member: p.at(), answer: c[0], releaseIn: c[1]})
				}
				req := &driver.Request{ID: "a", Name: "x", Mode: driver.Exclusive, N: 1, Wait: true}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, _ = s.Acquire(ctx, req)
				cancel()
				reply, err := s.Acquire(t.Context(), req)
				if err != nil || reply.Token == 0 {
					t.Fatal(reply, err)
				}
				h := driver.Hold{Name: "x", ID: "a", Token: reply.Token}
				if err := s.Release(t.Context(), h, 0); err == nil {
					t.Error("the release was not refused")
				}
				time.Sleep(5 * time.Second)
				if err := s.Release(t.Context(), h, 0); err != nil {
					t.Error("repeated:", err)
				}
			})
		})
	}
}
