package sqllock

import (
	"slices"
	"strings"
	"testing"
)

func FuzzDatagram(f *testing.F) {
	f.Add([]byte("abc-1 17\n"))
	f.Add([]byte("a 1\nb 0\nc 18446744073709551615\n"))
	f.Add([]byte("a 18446744073709551616\n a 1\nb\n\nc 1"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		var again []byte
		type line struct {
			id    string
			token uint64
		}
		var first, second []line
		parseDatagram(msg, func(id string, token uint64) {
			if id == "" || strings.Contains(id, "\n") {
				t.Fatalf("id %q", id)
			}
			first = append(first, line{id, token})
			again = appendLine(again, id, token)
		})
		parseDatagram(again, func(id string, token uint64) { second = append(second, line{id, token}) })
		if !slices.Equal(first, second) {
			t.Fatalf("%v written and parsed again: %v", first, second)
		}
	})
}

func TestDatagramSkipsNonsense(t *testing.T) {
	var got []string
	parseDatagram([]byte("good-1 5\n\nnospace\n 7\nneg -1\nbig 99999999999999999999\nfloat 1.5\ngood-2 0\ntruncated 12"),
		func(id string, token uint64) { got = append(got, id) })
	if !slices.Equal(got, []string{"good-1", "good-2"}) {
		t.Errorf("parsed %q; want only the good ones", got)
	}
}

func TestWaiters(t *testing.T) {
	heard := func(wake <-chan uint64) (token uint64, ok bool) {
		select {
		case token := <-wake:
			return token, true
		default:
			return 0, false
		}
	}
	b := newWaiters()
	w := b.begin("a", "x")
	b.notify("a", 3) // of an earlier use of the request ID
	b.notify("a", 9) // arrives before the answer to Acquire
	wake := b.park(w, 5)
	if token, _ := heard(wake); token != 9 {
		t.Errorf("woken with %d; want 9, which arrived before the answer", token)
	}
	b.notify("a", 4)
	if token, ok := heard(wake); ok {
		t.Errorf("woken with %d, which is older than the place", token)
	}
	b.notify("a", 0)
	b.notify("a", 11)
	b.notify("a", 0)
	if token, _ := heard(wake); token != 11 {
		t.Errorf("woken with %d; want the grant, 11, rather than 0", token)
	}
	b.cancel("a")
	b.notify("a", 12)
	if token, ok := heard(wake); ok {
		t.Errorf("woken with %d after the cancel", token)
	}
	if names := b.waiting(10); len(names) != 0 {
		t.Errorf("%q still have waiters", names)
	}
	w = b.begin("b", "x")
	b.cancel("b")
	if !b.isCancelled(w) {
		t.Error("an Acquire in progress does not see that it was cancelled")
	}
}
