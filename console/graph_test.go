package console

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// build makes records from lines such as "a: p1 | p2 p3", which says that p1 holds a, and p2 and p3
// wait in this order. A process in lower case with a prefix r: reads. "s/2:" is a semaphore with two
// permits.
func build(t *testing.T, age time.Duration, lines ...string) (list []holdfast.Record) {
	t.Helper()
	token := uint64(0)
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, ":")
		r := holdfast.Record{Name: name, Kind: "lock"}
		if n, limit, ok := strings.Cut(name, "/"); ok {
			r.Name, r.Kind = n, "semaphore"
			fmt.Sscan(limit, &r.Limit)
		}
		held, waits, _ := strings.Cut(rest, "|")
		for i, part := range []string{held, waits} {
			for _, p := range strings.Fields(part) {
				h := holdfast.Holder{Host: strings.TrimPrefix(p, "r-"), PID: 1, Permits: 1, Shared: strings.HasPrefix(p, "r-"),
					Since: time.Now().Add(-age)}
				token++
				h.ID = fmt.Sprint(token)
				if i == 0 {
					h.Token = token
					r.Holders = append(r.Holders, h)
				} else {
					r.Waiters = append(r.Waiters, h)
					r.Waiting++
				}
			}
		}
		list = append(list, r)
	}
	return list
}

func TestGraph(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		want  string // the members of the knots
	}{
		"nobody":                   {[]string{"a: p1 |"}, ""},
		"a chain":                  {[]string{"a: p1 | p2", "b: p2 | p3"}, ""},
		"two":                      {[]string{"a: p1 | p2", "b: p2 | p1"}, "p1 p2"},
		"three":                    {[]string{"a: p1 | p3", "b: p2 | p1", "c: p3 | p2"}, "p1 p2 p3"},
		"and one that waits":       {[]string{"a: p1 | p2", "b: p2 | p1 p4", "c: p4 | p5"}, "p1 p2"},
		"two knots":                {[]string{"a: p1 | p2", "b: p2 | p1", "c: p3 | p4", "d: p4 | p3"}, "p1 p2, p3 p4"},
		"itself":                   {[]string{"a: p1 | p1"}, ""},
		"a free permit later":      {[]string{"s/2: p1 p2 | p3", "b: p3 | p1"}, ""},
		"all permits":              {[]string{"s/2: p1 p2 | p3", "b: p3 | p1 p2"}, "p1 p2 p3"},
		"a reader behind a writer": {[]string{"a: r-p1 | p2 r-p1"}, "p1 p2"},
		"readers":                  {[]string{"a: r-p1 r-p2 | p3", "b: p3 | p4"}, ""},
		"places, both free":        {[]string{"a: p3 | p2 p1", "b: p4 | p1 p2"}, ""},
		"a free limit":             {[]string{"s/3: p1 | p2", "b: p2 | p1"}, ""},
	} {
		g := newGraph(build(t, time.Minute, c.lines...), time.Now())
		var all []string
		for _, k := range g.knots {
			var names []string
			for _, p := range k.parties {
				names = append(names, strings.TrimSuffix(p.who, ":1"))
			}
			slices.Sort(names)
			all = append(all, strings.Join(names, " "))
			if len(k.links) < 2 || k.victim == nil || len(k.sentences()) != len(k.links) {
				t.Errorf("%s: %+v", name, k)
			}
			for i, l := range k.links {
				if l.to != k.links[(i+1)%len(k.links)].from {
					t.Errorf("%s: the cycle is broken: %v", name, k.sentences())
				}
			}
			k.view()
		}
		slices.Sort(all)
		if got := strings.Join(all, ", "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if g := newGraph(build(t, time.Second, "a: p1 | p2", "b: p2 | p1"), time.Now()); len(g.knots) != 0 ||
		len(g.forming) != 1 {
		t.Error("a cycle of a second counts as a deadlock")
	}
}

// Long chains and large rings take no stack, and little time.
func TestLargeGraphs(t *testing.T) {
	var chain, ring []string
	const n = 5000
	for i := range n {
		chain = append(chain, fmt.Sprintf("n%d: p%d | p%d", i, i, i+1))
		ring = append(ring, fmt.Sprintf("n%d: p%d | p%d", i, i, (i+1)%n))
	}
	if g := newGraph(build(t, time.Minute, chain...), time.Now()); len(g.knots) != 0 || len(g.roots) != 1 {
		t.Errorf("%d knots, %d roots", len(g.knots), len(g.roots))
	}
	g := newGraph(build(t, time.Minute, ring...), time.Now())
	if len(g.knots) != 1 || len(g.knots[0].links) != n {
		t.Errorf("%d knots", len(g.knots))
	}
}

// The log keeps the last changes.
func TestLog(t *testing.T) {
	var l log
	for i := range maxLog + 10 {
		l.add(change{Token: uint64(i)})
	}
	list := l.latest(3, func(*change) bool { return true })
	if len(list) != 3 || list[0].Token != maxLog+9 || list[2].Token != maxLog+7 {
		t.Errorf("%+v", list)
	}
	snap := func(lines ...string) *snapshot {
		s := &snapshot{records: build(t, time.Minute, lines...), index: map[string]int{}}
		for i := range s.records {
			s.index[s.records[i].Name] = i
		}
		return s
	}
	l = log{}
	l.compare(snap("a: p1 |", "b: p2 |"), snap("a: p1 |", "c: p3 |"))
	got := l.latest(9, func(*change) bool { return true })
	if len(got) != 2 || got[0].Name != "b" || got[0].Begun || got[1].Name != "c" || !got[1].Begun {
		t.Errorf("%+v", got)
	}
	// Beyond the end of a reading that was cut, nothing is known.
	l = log{}
	cut := snap("a: p1 |")
	cut.more = true
	l.compare(cut, snap("a: p1 |", "b: p2 |"))
	l.compare(snap("a: p1 |", "b: p2 |"), cut)
	if len(l.list) != 0 {
		t.Errorf("%+v", l.list)
	}
}
