package rueidisconn

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/redislock/internal/listening"
)

// TestStandingOfAnother: a subscription ends right after its confirmation. The next one is not looked
// for at the server before its own confirmation: the server would not have it yet.
func TestStandingOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		s := newSubscription("subscribe", func(string) {}, func() {})
		s.receive = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		s.watch = &listening.Watch{
			Doubt: new(listening.Doubt), Confirmed: s.standing, Settled: s.settle,
			Count: func(context.Context, string, string) (int64, error) {
				looks++
				return 1, nil
			},
		}
		confirmed := func() { s.confirm(rueidis.PubSubSubscription{Kind: s.kind}) }
		confirmed()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = new(conn).receiveAll(ctx, s)
		}()
		synctest.Wait()
		if looks != 0 {
			t.Errorf("%d looks for a subscription without confirmation; want none", looks)
		}
		confirmed()
		synctest.Wait()
		if looks != 1 {
			t.Errorf("%d looks for a confirmed subscription; want one", looks)
		}
		cancel()
		<-ended
	})
}
