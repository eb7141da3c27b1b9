package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-lock/holdfast/driver"
)

var histories = []check{
	{"R20", "history", "a history has its last entries in order, and is no use of the name", func(e *env) {
		a, b := e.conn(), e.conn()
		name := e.name("h")
		if got := e.history(a, name); len(got) != 0 {
			e.Fatalf("History of a new name = %q; want nothing", got)
		}
		for i := range 7 {
			e.addHistory([]Conn{a, b}[i%2], name, fmt.Sprintf("entry %d", i), 5)
		}
		e.addHistory(a, name, "entry 6", 5) // a repeat
		want := []string{"entry 2", "entry 3", "entry 4", "entry 5", "entry 6"}
		if got := e.history(b, name); !slices.Equal(got, want) {
			e.Errorf("History = %q; want %q", got, want)
		}
		e.addHistory(b, name, "entry 7", 2)
		if got := e.history(a, name); !slices.Equal(got, []string{"entry 6", "entry 7"}) {
			e.Errorf("History of two = %q", got)
		}
		if list, err := a.List(e.ctx, e.prefix, "", 10); err != nil || len(list) != 0 {
			e.Errorf("List = %+v, %v; want nothing: a history is no lock", list, err)
		}
		if rec, err := a.Inspect(e.ctx, name); err != nil || rec.Kind != driver.Unused {
			e.Errorf("Inspect = %+v, %v; want unused", rec, err)
		}
		if entries, err := a.History(e.ctx, name); err != nil || entries[0].Age < 0 || entries[0].Age < entries[1].Age {
			e.Errorf("ages %+v, %v; want the oldest first", entries, err)
		}
	}},
	{"R20", "history beside a lock", "a history and a lock of one name do not affect each other", func(e *env) {
		a := e.peer()
		h := a.get(a.req("x"))
		e.addHistory(a.Conn, h.Name, "granted", 10)
		if ch := a.renew(h); ch.State != 0 {
			e.Errorf("Renew = %+v", ch)
		}
		if rec := a.inspect("x"); len(rec.Holders) != 1 || rec.Token != h.Token {
			e.Errorf("Inspect = %+v", rec)
		}
		if err := a.Break(e.ctx, h.Name, h.Token); err != nil {
			e.Fatalf("Break: %v", err)
		}
		if next := a.get(a.req("x")); next.Token <= h.Token {
			e.Errorf("token %d after %d", next.Token, h.Token)
		} else {
			a.release(next)
		}
		if got := e.history(a.Conn, h.Name); !slices.Equal(got, []string{"granted"}) {
			e.Errorf("History = %q", got)
		}
	}},
	{"R20", "histories of hostile names", "each name has a history of its own, whatever bytes name and entry have",
		func(e *env) {
			a := e.conn()
			for _, n := range hostileNames {
				e.addHistory(a, e.name(n), "entry of "+n, 3)
			}
			for _, n := range hostileNames {
				if got := e.history(a, e.name(n)); !slices.Equal(got, []string{"entry of " + n}) {
					e.Errorf("History(%q) = %q", n, got)
				}
			}
			long := strings.Repeat("y", driver.MaxName-len(e.prefix))
			text := strings.Repeat("é", driver.MaxEntry/2)
			e.addHistory(a, e.name(long), text, driver.MaxHistory)
			if got := e.history(a, e.name(long)); !slices.Equal(got, []string{text}) {
				e.Errorf("a long entry of a long name: %d entries", len(got))
			}
		}},
	{"R20", "history of no name", "the empty name has a history, which all clients share", func(e *env) {
		a, b := e.conn(), e.conn()
		text := e.prefix + "of no name"
		e.addHistory(a, "", text, driver.MaxHistory)
		if !slices.Contains(e.history(b, ""), text) {
			e.Error("another client does not see the entry")
		}
	}},
	{"R20", "histories at once", "entries that many clients add at once are all kept, each once", func(e *env) {
		const clients, each = 4, 25
		name := e.name("h")
		var all sync.WaitGroup
		for i := range clients {
			c := e.conn()
			all.Go(func() {
				for j := range each {
					if err := c.AddHistory(e.ctx, name, fmt.Sprintf("%d-%02d", i, j), driver.MaxHistory); err != nil {
						e.Errorf("AddHistory: %v", err)
						return
					}
				}
			})
		}
		all.Wait()
		got := e.history(e.conn(), name)
		if len(got) != clients*each {
			e.Errorf("%d entries; want %d", len(got), clients*each)
		}
		for i := range clients { // those of one client are in its order
			var own []string
			for _, text := range got {
				if strings.HasPrefix(text, fmt.Sprint(i, "-")) {
					own = append(own, text)
				}
			}
			if !slices.IsSorted(own) || len(slices.Compact(own)) != each {
				e.Errorf("client %d: %q", i, own)
			}
		}
	}},
	{"R20", "answer to history lost", "an entry whose answer was lost is added once, by the repeat or before", func(e *env) {
		c := e.conn()
		name := e.name("h")
		heal := c.DropReplies()
		ctx, cancel := context.WithTimeout(e.ctx, e.h.TTL)
		err := c.AddHistory(ctx, name, "once", 3)
		cancel()
		if err == nil {
			e.Error("AddHistory without an answer: no error")
		}
		heal()
		e.addHistory(e.conn(), name, "once", 3)
		if got := e.history(e.conn(), name); !slices.Equal(got, []string{"once"}) {
			e.Errorf("History = %q", got)
		}
	}},
	{"R13", "refused history", "an entry that the store refuses to write is in no history", func(e *env) {
		e.refusals(func(refuse func() func()) {
			c := e.conn()
			name := e.name("h")
			e.addHistory(c, name, "first", 3)
			heal := refuse()
			if !e.isRefused("AddHistory", func(ctx context.Context) error { return c.AddHistory(ctx, name, "second", 3) }) {
				return
			}
			heal()
			if got := e.history(e.conn(), name); !slices.Equal(got, []string{"first"}) {
				e.Errorf("History = %q", got)
			}
			e.repeatRefused("AddHistory", func(ctx context.Context) error { return c.AddHistory(ctx, name, "second", 3) })
			if got := e.history(e.conn(), name); !slices.Equal(got, []string{"first", "second"}) {
				e.Errorf("History after the repeat = %q", got)
			}
		})
	}},
	{"R20", "malformed history", "entries, lengths and names that are not allowed are refused with ErrInvalid, and add nothing",
		func(e *env) {
			c := e.conn()
			name := e.name("h")
			for what, add := range map[string]func() error{
				"an empty entry":    func() error { return c.AddHistory(e.ctx, name, "", 1) },
				"a long entry":      func() error { return c.AddHistory(e.ctx, name, strings.Repeat("x", driver.MaxEntry+1), 1) },
				"an entry in bytes": func() error { return c.AddHistory(e.ctx, name, "\xff", 1) },
				"no length":         func() error { return c.AddHistory(e.ctx, name, "x", 0) },
				"a great length":    func() error { return c.AddHistory(e.ctx, name, "x", driver.MaxHistory+1) },
				"a long name":       func() error { return c.AddHistory(e.ctx, strings.Repeat("x", driver.MaxName+1), "x", 1) },
				"a name in bytes":   func() error { return c.AddHistory(e.ctx, "\xff", "x", 1) },
				"a long name read": func() error {
					_, err := c.History(e.ctx, strings.Repeat("x", driver.MaxName+1))
					return err
				},
			} {
				if err := add(); !errors.Is(err, driver.ErrInvalid) {
					e.Errorf("%s: %v; want ErrInvalid", what, err)
				}
			}
			if got := e.history(c, name); len(got) != 0 {
				e.Errorf("History = %q", got)
			}
		}},
	{"R20", "history after a restart", "a history outlives a restart of the store with its data", func(e *env) {
		name := e.name("h")
		e.addHistory(e.conn(), name, "before", 3)
		e.h.Restart(e.TB)
		c := e.conn()
		e.until("the store answers", func() bool { _, err := c.History(e.ctx, name); return err == nil })
		e.addHistory(c, name, "after", 3)
		if got := e.history(c, name); !slices.Equal(got, []string{"before", "after"}) {
			e.Errorf("History = %q", got)
		}
	}},
}

func (e *env) addHistory(c Conn, name, text string, keep int) {
	e.Helper()
	if err := c.AddHistory(e.ctx, name, text, keep); err != nil {
		e.Fatalf("AddHistory(%q, %.20q): %v", name, text, err)
	}
}

func (e *env) history(c Conn, name string) (texts []string) {
	e.Helper()
	entries, err := c.History(e.ctx, name)
	if err != nil {
		e.Fatalf("History(%q): %v", name, err)
	}
	for _, entry := range entries {
		texts = append(texts, entry.Text)
	}
	return texts
}
