package redislock_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// A limit that is set while memory is full is listed: List is how operators find it again.
func TestLimitSetInFullMemory(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	b := redislock.New(dialRueidis(t, r.Addr), nil)
	ctx := within(t, time.Minute)
	openSession(t, b, long) // the server knows the scripts
	fill(t, r)
	if err := b.SetLimit(ctx, "s", 3); err != nil {
		t.Fatalf("SetLimit in full memory: %v", err)
	}
	if list, err := b.List(ctx, "", "", 10); err != nil || len(list) != 1 || list[0].Limit != 3 || !list[0].Set {
		t.Errorf("List = %+v, %v; want the limit", list, err)
	}
}

// The state of a name was deleted or evicted, and its other keys were not. A limit that is set then
// starts afresh: grants and places of before do not come back.
func TestLimitSetAfterADeletion(t *testing.T) {
	t.Parallel()
	r := testenv.Redis(t)
	b := redislock.New(dialRueidis(t, r.Addr), nil)
	s, ctx := openSession(t, b, long), within(t, time.Minute)
	req := func(mode driver.Mode, n, limit int) *driver.Request {
		return &driver.Request{ID: newID(), Name: "s", Mode: mode, N: n, Limit: limit, Wait: true}
	}
	readers := granted(t, s, req(driver.Shared, 1, 0))
	writer := req(driver.Exclusive, 1, 0)
	acquire(t, s, writer)
	client := rawClient(t, r.Addr)
	keys, err := client.Do(ctx, client.B().Keys().Pattern("hf:*:l:s").Build()).AsStrSlice()
	if err != nil || len(keys) != 1 {
		t.Fatalf("the state: %q, %v", keys, err)
	}
	if err := client.Do(ctx, client.B().Del().Key(keys...).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := b.SetLimit(ctx, "s", 3); err != nil {
		t.Fatal(err)
	}
	three := granted(t, s, req(driver.Permits, 3, 0))
	rec, err := b.Inspect(ctx, "s")
	ids := make([]string, 0, len(rec.Holders))
	for _, h := range rec.Holders {
		ids = append(ids, h.ID)
	}
	if err != nil || !slices.Equal(ids, []string{three.ID}) || rec.Waiting != 0 {
		t.Errorf("Inspect = %+v, %v; want the grant of three permits alone", rec, err)
	}
	if changes, err := s.Renew(ctx, []driver.Hold{readers}); err != nil || len(changes) != 1 ||
		changes[0].State != driver.Gone {
		t.Errorf("Renew of a reader of before: %+v, %v; want gone", changes, err)
	}
	if err := s.Release(ctx, three, 0); err != nil {
		t.Fatal(err)
	}
	if rec, err := b.Inspect(ctx, "s"); err != nil || rec.Kind != driver.Semaphore || rec.Limit != 3 || !rec.Set ||
		len(rec.Holders) > 0 {
		t.Errorf("Inspect = %+v, %v; want the limit of 3, and no holder", rec, err)
	}
}
