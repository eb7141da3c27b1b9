package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-lock/holdfast/driver"
)

// hostileNames are names that encodings often get wrong.
var hostileNames = []string{
	"a", "A", "a ", " a", "a\x00", "\x00", "a\nb", "a\r\nb", "\t", "{a}", "{", "}", "}{", "{}", "{{a}}", "a}b", "a{b",
	"/", "//", "a/", "a/b", "/a", ".", "..", "../a", "a/../b", "%", "%00", "%2f", "a%2Fb", "%s", "?", "*", "a*", "[a]",
	"\\", "\\0",
	"'", "''", "\"", "; DROP TABLE lock", "--", "a:b", "a:b:c", ":", "é", "e\u0301", "É", "ß", "ss", "SS", "İ", "i̇", "日本",
	"🔒", "\u202e", "\ufeff", "ﬀ",
	"null", "0", "00", "-1", "true", strings.Repeat("x", 500), strings.Repeat("x", 499) + "y", strings.Repeat("é", 250),
}

// allowed returns those of names that the store allows, after it has checked that the others are
// refused.
func (e *env) allowed(names []string) (allowed []string) {
	e.Helper()
	for _, n := range names {
		if e.h.RefusesName == nil || !e.h.RefusesName(e.name(n)) {
			allowed = append(allowed, n)
		} else if _, err := e.peer().Acquire(e.ctx, once(e.peer().req(n))); !errors.Is(err, driver.ErrInvalid) {
			e.Errorf("Acquire(%q): %v; want ErrInvalid", e.name(n), err)
		}
	}
	return allowed
}

var names = []check{
	{"R9", "hostile names", "every name is a lock of its own, whatever bytes it has, and is listed unchanged",
		func(e *env) {
			a, b := e.peerFor(2*longTTL), e.peer() // a's leases last until the last name is done
			var holds []driver.Hold
			var want []string
			allowed := e.allowed(hostileNames)
			for _, n := range allowed {
				h := a.get(once(a.req(n)))
				holds, want = append(holds, h), append(want, h.Name)
				if rec := b.inspect(n); rec.Name != h.Name || rec.Token != h.Token {
					e.Errorf("Inspect(%q) = %q, token %d; want token %d", h.Name, rec.Name, rec.Token, h.Token)
				}
			}
			for _, n := range allowed {
				b.refused(once(b.req(n)))
			}
			slices.Sort(want)
			var got []string
			list, err := b.List(e.ctx, e.prefix, "", 1000)
			if err != nil {
				e.Fatalf("List: %v", err)
			}
			for _, rec := range list {
				got = append(got, rec.Name)
			}
			if !slices.Equal(got, want) {
				e.Errorf("List = %q\nwant   %q", got, want)
			}
			for _, h := range holds {
				a.release(h)
			}
			for _, n := range allowed {
				b.release(b.get(once(b.req(n))))
			}
		}},
	{"R9", "lengths", "names of 1 and of 512 bytes work", func(e *env) {
		a := e.peer()
		for _, n := range []string{"x", "\x7f", strings.Repeat("y", driver.MaxName), strings.Repeat("é", driver.MaxName/2)} {
			r := a.req("")
			r.Name = n // no space for the check's own prefix
			h := a.get(r)
			if rec, err := a.Inspect(e.ctx, n); err != nil || rec.Token != h.Token {
				e.Errorf("Inspect of a name of %d bytes: %+v, %v", len(n), rec, err)
			}
			a.release(h)
		}
	}},
	{"R9", "many names", "hundreds of names (Harness.Names) are held, renewed together and listed in pages",
		func(e *env) {
			names := e.h.Names
			if names == 0 {
				names = 1000
			}
			a := e.peerFor(2 * longTTL) // on a slow machine all this takes longer than a TTL
			reqs := make([]*driver.Request, names)
			for i := range reqs {
				reqs[i] = once(a.req(fmt.Sprintf("n%05d", i)))
			}
			holds := make([]driver.Hold, len(reqs))
			var all sync.WaitGroup
			for first := range 16 {
				all.Go(func() {
					for i := first; i < len(reqs); i += 16 {
						reply, err := a.Acquire(e.ctx, reqs[i])
						if err != nil || reply.Token == 0 {
							e.Errorf("Acquire(%q) = %+v, %v", reqs[i].Name, reply, err)
							return
						}
						holds[i] = driver.Hold{Name: reqs[i].Name, ID: reqs[i].ID, Token: reply.Token}
					}
				})
			}
			if all.Wait(); e.Failed() {
				return
			}
			if changes, err := a.Renew(e.ctx, holds); err != nil || len(changes) != 0 {
				e.Fatalf("Renew of %d: %d changes, %v", names, len(changes), err)
			}
			seen := 0
			for after := e.name("n00004"); ; {
				list, err := a.List(e.ctx, e.name("n"), after, names*3/4)
				if err != nil {
					e.Fatalf("List: %v", err)
				}
				for _, rec := range list {
					if want := e.name(fmt.Sprintf("n%05d", seen+5)); rec.Name != want {
						e.Fatalf("List: %q; want %q", rec.Name, want)
					}
					seen++
				}
				if len(list) < names*3/4 {
					break
				}
				after = list[len(list)-1].Name
			}
			if seen != names-5 {
				e.Errorf("listed %d names; want %d", seen, names-5)
			}
			if err := a.Close(e.ctx); err != nil {
				e.Fatalf("Close: %v", err)
			}
		}},
	{"R9", "list prefix", "List returns only names with the prefix, byte for byte", func(e *env) {
		a := e.peer()
		for _, n := range []string{"p", "p/1", "p/2", "p0", "P/1", "q"} {
			a.get(a.req(n))
		}
		list, err := a.List(e.ctx, e.name("p/"), "", 10)
		if err != nil || len(list) != 2 || list[0].Name != e.name("p/1") || list[1].Name != e.name("p/2") {
			e.Errorf("List(p/) = %+v, %v", list, err)
		}
		list, err = a.List(e.ctx, e.name("p"), e.name("p"), 2)
		if err != nil || len(list) != 2 || list[0].Name != e.name("p/1") {
			e.Errorf("List(p) after p, 2 = %+v, %v", list, err)
		}
	}},
}
