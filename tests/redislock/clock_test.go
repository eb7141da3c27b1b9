package redislock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

const clockStart = 1_700_000_000

// clocked returns a server whose scripts read a clock. set moves it to so many seconds after its
// start.
func clocked(t *testing.T) (client rueidis.Client, b *redislock.Backend, set func(s int)) {
	t.Helper()
	client = rawClient(t, testenv.Redis(t).Addr)
	b = newEdited(rueidisconn.New(client), nil, func(_, text string) string {
		return strings.ReplaceAll(text, "redis.call('TIME')", "redis.call('HMGET', 'clock', 's', 'u')")
	})
	set = func(s int) {
		t.Helper()
		cmd := client.B().Hset().Key("clock").FieldValue().FieldValue("s", fmt.Sprint(clockStart+s)).FieldValue("u", "5").
			Build()
		if err := client.Do(within(t, soon), cmd).Error(); err != nil {
			t.Fatal(err)
		}
	}
	set(0)
	return client, b, set
}

// TestSeenAfterClockSetBack: holders and waiters from before the clock was set back are still
// listed, and still block others. Their ages are unknown, so none is reported.
func TestSeenAfterClockSetBack(t *testing.T) {
	t.Parallel()
	_, b, set := clocked(t)
	s := openSession(t, b, long)
	for name, first := range map[string]*driver.Request{
		"mutex":     {Mode: driver.Exclusive, N: 1},
		"shared":    {Mode: driver.Shared, N: 1},
		"semaphore": {Mode: driver.Permits, N: 2, Limit: 2},
	} {
		set(0)
		ask := func() *driver.Request {
			r := *first
			r.ID, r.Name = newID(), name
			if name == "shared" {
				r.Mode = driver.Exclusive // which cannot share it
			}
			return &r
		}
		held := ask()
		held.Mode = first.Mode
		h := granted(t, s, held)
		waits := ask()
		waits.Wait = true
		acquire(t, s, waits)
		set(-3600)
		r, err := b.Inspect(within(t, soon), name)
		if err != nil {
			t.Errorf("%s: Inspect: %v", name, err)
		} else if len(r.Holders) != 1 || len(r.Waiters) != 1 || r.Holders[0].Token != h.Token || r.Holders[0].Age != 0 ||
			r.Waiters[0].Age != 0 {
			t.Errorf("%s: Inspect: %+v; want a holder and a waiter, of no age", name, r)
		}
		for _, wait := range []bool{false, true} {
			late := ask()
			late.Wait = wait
			reply, err := s.Acquire(within(t, soon), late)
			if err != nil || reply.Token != 0 || reply.Holder == nil || reply.Holder.Token != h.Token || reply.Holder.Age != 0 {
				t.Errorf("%s, wait: %v: Acquire: %+v, %v; want the holder, of no age", name, wait, reply, err)
			}
		}
	}
}

// TestClockSetBack: tokens grow although the clock was set back and the name was forgotten.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	client, b, set := clocked(t)
	ctx := within(t, soon)
	s := openSession(t, b, time.Second)
	last := uint64(0)
	for _, at := range []int{0, 65, 130, -3600, -3535, -3470, -3405, -7200, -7130, 200, 265} {
		set(at)
		for range 3 {
			h := granted(t, s, exclusive("x"))
			if h.Token <= last {
				t.Fatalf("at %d: token %d after %d", at, h.Token, last)
			}
			last = h.Token
			if err := s.Release(ctx, h, 0); err != nil {
				t.Fatal(err)
			}
		}
		// After more than a minute the name is forgotten.
		keys, err := client.Do(ctx, client.B().Keys().Pattern("hf:{*}:l:x").Build()).AsStrSlice()
		if err != nil || len(keys) != 1 {
			t.Fatal(keys, err)
		}
		if err := client.Do(ctx, client.B().Del().Key(keys...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if ahead := time.Duration(last-clockStart*1e6) * time.Microsecond; ahead > 5*time.Minute {
		t.Errorf("the tokens ran ahead of the clock by %v", ahead)
	}
}
