package holdfast_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/memlock"
)

// slowAnswers is a store whose answers to an operator come late.
type slowAnswers struct {
	driver.Backend
	late time.Duration
}

func (s *slowAnswers) AddHistory(ctx context.Context, name, text string, keep int) error {
	err := s.Backend.AddHistory(ctx, name, text, keep)
	if name == "" {
		time.Sleep(s.late)
	}
	return err
}

func (s *slowAnswers) Break(ctx context.Context, name string, token uint64) error {
	time.Sleep(time.Millisecond) // before the break, and so before the next grant
	err := s.Backend.Break(ctx, name, token)
	time.Sleep(s.late)
	return err
}

// In a history an operator's act comes before what follows from it, also if the operator learns late that
// it is done.
func TestHistoryOfSlowOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, &holdfast.Config{TTL: ttl, History: 100})
		operator := client(t, &slowAnswers{store, ttl/3 + time.Second}, &holdfast.Config{TTL: ttl})
		l := lock(t, c, "asked")
		go func() {
			<-holdfast.Revoked(l.Context(t.Context()))
			_ = l.Release()
		}()
		time.Sleep(time.Millisecond)
		if err := operator.Revoke(t.Context(), "asked", l.Token(), ""); err != nil {
			t.Error(err)
		}
		sameEvents(t, events(t, c, "asked"), fmt.Sprint("granted ", l.Token()), fmt.Sprint("asked ", l.Token()),
			fmt.Sprint("released ", l.Token()))

		l = lock(t, c, "broken")
		next := make(chan *holdfast.Lease, 1)
		go func() { next <- take(t)(c.Mutex("broken").Lock(t.Context())) }()
		synctest.Wait()
		if err := operator.Break(t.Context(), "broken", l.Token(), ""); err != nil {
			t.Error(err)
		}
		after := <-next
		got := slices.DeleteFunc(events(t, c, "broken"), func(e string) bool { return strings.HasPrefix(e, "lost") })
		sameEvents(t, got, fmt.Sprint("granted ", l.Token()), fmt.Sprint("broken ", l.Token()),
			fmt.Sprint("granted ", after.Token()))
		if err := after.Release(); err != nil {
			t.Error(err)
		}
	})
}

// slowNotices is a store at which an operator's notice comes late.
type slowNotices struct {
	driver.Backend
	late time.Duration
}

func (s *slowNotices) AddHistory(ctx context.Context, name, text string, keep int) error {
	time.Sleep(s.late)
	return s.Backend.AddHistory(ctx, name, text, keep)
}

// The holder of a broken grant learns who has broken it, also if that is added half a second later. It waits
// for at most a second.
func TestBreakWithLateNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := client(t, store, &holdfast.Config{TTL: ttl})
		for late, want := range map[time.Duration]holdfast.Reason{
			600 * time.Millisecond: holdfast.ReasonBroken, 2 * time.Second: holdfast.ReasonEnded,
		} {
			operator := client(t, &slowNotices{store, late}, &holdfast.Config{TTL: ttl})
			l := lock(t, c, "x")
			broken := make(chan error, 1)
			go func() { broken <- operator.Break(t.Context(), "x", l.Token(), "it hangs") }()
			synctest.Wait()
			var err error
			within(t, "the release", 0, time.Second, func() { err = l.Release() })
			isLost(t, err, want)
			if err := <-broken; err != nil {
				t.Error(err)
			}
		}
	})
}
