package verify

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/driver"
)

// The figures of a short history: a holder dies, a waiter is granted the lock, and one cancels.
func TestFigures(t *testing.T) {
	const ms = int64(time.Millisecond)
	at := func(t int64, kind history.Kind, client, id string) history.Event {
		e := history.Event{T: 1 + t*ms, Kind: kind, Client: client, ID: id, Name: "a"}
		if kind == history.Acquire {
			e.Wait = true
		}
		return e
	}
	shared := at(0, history.Acquire, "p2.1/0", "s")
	shared.Mode, shared.Name = driver.Shared, "b"
	events := []history.Event{
		shared, at(0, history.Acquire, "p1.1/0", "1"), at(1, history.Granted, "p2.1/0", "s"),
		at(2, history.Granted, "p1.1/0", "1"),
		at(3, history.Acquire, "p2.1/0", "2"), at(4, history.Acquire, "p3.1/0", "3"), at(5, history.Acquire, "p3.1/1", "4"),
		at(10, history.Release, "p1.1/0", "1"), at(11, history.Granted, "p2.1/0", "2"),
		at(12, history.Released, "p1.1/0", "1"),
		{T: 1 + 20*ms, Kind: history.Died, Client: "p2.1"},
		at(25, history.Cancelled, "p3.1/1", "4"),
		at(220, history.Granted, "p3.1/0", "3"), at(221, history.Release, "p3.1/0", "3"),
		at(222, history.Released, "p3.1/0", "3"),
		at(1000, history.Acquire, "p3.1/0", "5"), at(1002, history.Granted, "p3.1/0", "5"),
		at(1200, history.Lost, "p3.1/0", "5"),
	}
	f := figuresOf(events, 100*time.Millisecond)
	want := Figures{
		Grants: 5, Lost: 1, Rate: f.Rate, LongestWait: 216 * time.Millisecond, LockOuts: 1,
		LongestLockOut: 209 * time.Millisecond,
		HandOver:       Spread{1, time.Millisecond, time.Millisecond, time.Millisecond},
		Recovery:       Spread{1, 200 * time.Millisecond, 200 * time.Millisecond, 200 * time.Millisecond},
	}
	if f != want || f.Rate < 4.9 || f.Rate > 5.1 {
		t.Errorf("%+v; want %+v", f, want)
	}
	if f := figuresOf(nil, time.Second); f != (Figures{}) || f.HandOver.String() != "never seen" {
		t.Errorf("of no events: %+v", f)
	}
}

// A lock-out that no grant ends counts, too: its calls give up, or wait to the end.
func TestLockOutWithoutEnd(t *testing.T) {
	events := []history.Event{
		{T: 1e9, Kind: history.Acquire, ID: "1", Name: "a", Wait: true},
		{T: 4e9, Kind: history.Cancelled, ID: "1"},
		{T: 6e9, Kind: history.Acquire, ID: "2", Name: "a", Wait: true},
		{T: 8e9, Kind: history.Final, Name: "a"},
	}
	if f := figuresOf(events, time.Second); f.LockOuts != 2 || f.LongestLockOut != 3*time.Second {
		t.Errorf("%+v", f)
	}
}

func TestSpread(t *testing.T) {
	var all []time.Duration
	for i := range 200 {
		all = append(all, time.Duration(200-i)*time.Millisecond)
	}
	if s := spreadOf(all); s != (Spread{200, 100 * time.Millisecond, 198 * time.Millisecond, 200 * time.Millisecond}) ||
		s.String() != "p50 100ms, p99 198ms, at most 200ms of 200" {
		t.Errorf("%+v %s", s, s)
	}
	for d, want := range map[time.Duration]string{1234 * time.Microsecond: "1.23ms", 12345678: "12.3ms", 12345: "12µs",
		61234 * time.Millisecond: "1m1.2s"} {
		if got := rounded(d).String(); got != want {
			t.Errorf("%v is %s; want %s", d, got, want)
		}
	}
}
