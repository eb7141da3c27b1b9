package sqlite

import (
	"slices"
	"strings"
	"testing"
	"time"
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

// A stranger saw the push of a grant, and sends the waiter another token before it has read the
// first. The waiter asks, and gets the grant that is on record.
func TestSQLiteForgedAfterGrant(t *testing.T) {
	st := openTest(t, storePath(t), nil)
	holder, waiter := openTestSession(t, st, time.Minute), openTestSession(t, st, time.Minute)
	h, r := granted(t, holder, exclusive("x")), exclusive("x")
	rep, err := waiter.Acquire(t.Context(), r)
	must(t, err)
	must(t, holder.Release(t.Context(), h, 0)) // the push of a session of the same process comes with it
	hour := uint64(time.Hour.Microseconds())
	for _, token := range []uint64{h.Token + hour, h.Token + 2*hour, h.Token + hour} {
		waiter.received(r.ID, token)
	}
	select {
	case token := <-rep.Wake:
		if token != 0 {
			t.Fatalf("woken with %d; two tokens came", token)
		}
	default:
		t.Fatal("no push")
	}
	if rep, err = waiter.Acquire(t.Context(), r); err != nil || rep.Token == 0 || rep.Token >= h.Token+hour {
		t.Errorf("Acquire = %+v, %v; want the grant after %d", rep, err, h.Token)
	}
}
