package sqllock

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
)

// FuzzRow: any text of a row is either parsed or refused, and a parsed row is written back
// unchanged.
func FuzzRow(f *testing.F) {
	f.Add("a-1 s.c 1 1 0 5 9 info%20\n", "")
	f.Add("a-1 s.c 2 1 7 5 9 \nb s.d 1 1 0 6 8 x\n", "H c s.c 2 1 77 1 9 3 0 {}\nH d s.d 2 1 78 1 9 9 1 \n")
	f.Add("a-1 s.c 1 50 0 5 9 \nb s.d 2 1 0 6 8 x\n", "")
	f.Add("", "A w-1 s.c\n")
	f.Add("a-1 s.c 1 1 0 5 9 %\n", "H\n")
	f.Fuzz(func(t *testing.T, line, more string) {
		r := &record{name: "n", exists: true, now: 1, cols: columns{kind: int(driver.Lock), line: line, more: more}}
		if err := r.tryDecode(); err != nil {
			return
		}
		c := r.encode()
		again := &record{name: "n", exists: true, now: 1, cols: c}
		if err := again.tryDecode(); err != nil {
			t.Fatalf("%q, %q: written as %q, %q: %v", line, more, c.line, c.more, err)
		}
		if c2 := again.encode(); c2.line != c.line || c2.more != c.more || c2.hid != c.hid {
			t.Fatalf("%q, %q: written as %+v, and then as %+v", line, more, c, c2)
		}
	})
}

// FuzzField: any text becomes a field without spaces or line ends, and is read back unchanged.
func FuzzField(f *testing.F) {
	f.Add("")
	f.Add("a b\n%20\x00\xff{\"host\":\"é\"}")
	f.Fuzz(func(t *testing.T, s string) {
		e := escape(s)
		if strings.ContainsAny(e, " \n\r\t\x00") {
			t.Fatalf("%q is written as %q", s, e)
		}
		if back, err := Unescape(e); err != nil || back != s {
			t.Fatalf("%q comes back as %q, %v", s, back, err)
		}
	})
}

// FuzzUnescape: text that is no field is refused.
func FuzzUnescape(f *testing.F) {
	f.Add("a%2")
	f.Add("%zz%20")
	f.Fuzz(func(t *testing.T, s string) { _, _ = Unescape(s) })
}

// A row written from an entry is read back as the same entry.
func TestRow(t *testing.T) {
	req := func(id string, mode driver.Mode, n int) driver.Request {
		return driver.Request{ID: id, Name: "n", Mode: mode, N: n, Info: "{\"note\": \"a b\"}\n" + id}
	}
	block := func(n int) driver.Request {
		r := req(fmt.Sprint("b", n), driver.Exclusive, 1)
		r.Tokens = n
		return r
	}
	for what, e := range map[string]rule.Entry{
		"unused": {},
		"held": {Kind: driver.Lock, Last: 7, Holds: []rule.Hold{{Request: req("a", driver.Exclusive, 1), Session: "s.a",
			Token: 7, Since: 1000, Expires: 9000}}},
		"kept": {Kind: driver.Lock, Last: 7, Holds: []rule.Hold{{
			Request: req("a", driver.Exclusive, 1), Token: 7, Since: 1000, Expires: 9000, KeepUntil: 9000, Kept: true}}},
		"shared": {Kind: driver.Lock, Last: 8, Holds: []rule.Hold{
			{Request: req("a", driver.Shared, 1), Session: "s.a", Token: 7, Since: 1000, Expires: 9000},
			{Request: req("b", driver.Shared, 1), Session: "s.b", Token: 8, Since: 2000, Expires: 9000, KeepUntil: 12000},
		}},
		"waited for": {Kind: driver.Semaphore, Limit: 3, Last: 8, Holds: []rule.Hold{
			{Request: req("a", driver.Permits, 3), Session: "s.a", Token: 8, Since: 1000, Expires: 9000},
		}, Line: []rule.Place{{Request: req("c", driver.Permits, 2), Session: "s.c", Since: 3000, Deadline: 8000}}},
		"blocks": {Kind: driver.Lock, Last: 7, Holds: []rule.Hold{{Request: req("a", driver.Exclusive, 1), Session: "s.a",
			Token: 7, Since: 1000, Expires: 9000}}, Line: []rule.Place{
			{Request: block(driver.MaxTokens), Session: "s.c", Since: 3000, Deadline: 8000},
			{Request: block(1), Session: "s.c", Since: 3000, Deadline: 8000},
		}},
		"latch": {Kind: driver.Latch, Count: 4, Await: []rule.Interest{{ID: "w", Session: "s.w"}}},
	} {
		for i := range e.Line {
			e.Line[i].Limit, e.Line[i].Wait = e.Limit, true
		}
		w := &record{name: "n", entry: e}
		r := &record{name: "n", cols: w.encode()}
		if err := r.tryDecode(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		r.entry.Mint, r.entry.Done = nil, nil
		if !reflect.DeepEqual(r.entry, e) {
			t.Errorf("%s: written as %+v and read as\n%+v; want\n%+v", what, r.cols, r.entry, e)
		}
	}
}
