package redislock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// A forged message of another user who knows the request makes its waiter ask, and has no other
// effect.
func TestForgedMessage(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	holder, _ := session(t, server.URL(), time.Minute)
	waiter, b := session(t, server.URL(), time.Minute)
	r := exclusive("stranger")
	h := granted(t, holder, exclusive(r.Name))
	reply := acquire(t, waiter, r)
	taken := granted(t, holder, exclusive(r.Name+"/second"))
	second := exclusive(taken.Name)
	other := acquire(t, waiter, second)
	var channel string
	// the holder's is there, too, and does not know the request
	for _, c := range listening(t, server, "CHANNELS", "hf:s:*") {
		channel = c
		server.Do(fmt.Sprintf("PUBLISH %s \"%s %d\"", c, r.ID, time.Now().Add(48*time.Hour).UnixMicro()))
	}
	if channel == "" {
		t.Fatal("no subscriber")
	}
	asks := func() driver.Reply {
		t.Helper()
		select {
		case token := <-reply.Wake:
			if token != 0 {
				t.Errorf("the waiter accepts token %d", token)
			}
		case <-within(t, time.Minute).Done():
			t.Fatal("the waiter does not ask")
		}
		return acquire(t, waiter, r)
	}
	if reply = asks(); reply.Token != 0 {
		t.Fatalf("granted next to the holder: %+v", reply)
	}
	if err := holder.Release(within(t, time.Minute), h, 0); err != nil {
		t.Fatal(err)
	}
	until(t, "the waiter has a push", func() bool { return len(reply.Wake) == 1 })
	for _, c := range listening(t, server, "CHANNELS", "hf:s:*") {
		server.Do(fmt.Sprintf("PUBLISH %s \"%s %d\"", c, r.ID, h.Token+uint64(time.Minute.Microseconds())))
	}
	// Messages of a channel arrive in order: this one comes after the forged one.
	for _, c := range listening(t, server, "CHANNELS", "hf:s:*") {
		server.Do(fmt.Sprintf("PUBLISH %s \"%s 0\"", c, second.ID))
	}
	if token := woken(t, other); token != 0 {
		t.Errorf("the second waiter accepts token %d", token)
	}
	rec, err := b.Inspect(within(t, time.Minute), r.Name)
	if err != nil || len(rec.Holders) != 1 {
		t.Fatalf("Inspect: %+v, %v", rec, err)
	}
	if reply = asks(); reply.Token != rec.Holders[0].Token {
		t.Errorf("granted is %d, on record %d", reply.Token, rec.Holders[0].Token)
	}
}
