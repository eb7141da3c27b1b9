package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// perPage is how many names a page lists.
const perPage = 100

// longQueue is how many waiters are worth a flag.
const longQueue = 10

// row is one name in the list.
type row struct {
	Name    string // shown
	Link    string
	Use     string
	Holder  string
	More    int // further holders
	What    string
	Labels  []string
	Held    string
	Lease   lease
	HasOne  bool // holder
	Waiting int
	Oldest  string // how long the first waiter has waited
	Flags   []flag
	Damaged string
}

// flag is a word with a level: "bad" or "warn".
type flag struct{ Level, Text string }

// query is what the list is filtered and sorted by.
type query struct {
	Prefix, Label, Host, Sort string
	Page                      int
}

// sorts are the orders of the list, and what they are called.
var sorts = []struct{ Key, Text string }{
	{"pain", "waiters × age"}, {"waiting", "waiters"}, {"held", "held the longest"}, {"lease", "least lease"},
	{"name", "name"},
}

func readQuery(v url.Values) query {
	q := query{Prefix: v.Get("prefix"), Label: v.Get("label"), Host: v.Get("host"), Sort: "pain"}
	for _, s := range sorts {
		if s.Key == v.Get("sort") {
			q.Sort = s.Key
		}
	}
	q.Page, _ = strconv.Atoi(v.Get("page"))
	q.Page = min(max(q.Page, 1), 1_000_000)
	return q
}

// link returns the address of the list with another page.
func (q query) link(page int) string {
	v := url.Values{}
	for k, text := range map[string]string{"prefix": q.Prefix, "label": q.Label, "host": q.Host} {
		if text != "" {
			v.Set(k, text)
		}
	}
	if q.Sort != "pain" {
		v.Set("sort", q.Sort)
	}
	if page > 1 {
		v.Set("page", strconv.Itoa(page))
	}
	return "./?" + v.Encode()
}

// wants reports whether a record passes the filter.
func (q query) wants(r *holdfast.Record) bool {
	if !strings.HasPrefix(r.Name, q.Prefix) {
		return false
	}
	if q.Label == "" && q.Host == "" {
		return true
	}
	k, v, exact := strings.Cut(q.Label, "=")
	fits := func(h holdfast.Holder) bool {
		if q.Host != "" && h.Host != q.Host {
			return false
		}
		got, ok := h.Labels[k]
		return q.Label == "" || ok && (!exact || got == v)
	}
	return slices.ContainsFunc(r.Holders, fits) || slices.ContainsFunc(r.Waiters, fits)
}

// age returns how long the first holder has had the name, or the first waiter has waited.
func age(r *holdfast.Record, now time.Time) (d time.Duration) {
	if len(r.Holders) > 0 {
		d = now.Sub(r.Holders[0].Since)
	}
	if len(r.Waiters) > 0 {
		d = max(d, now.Sub(r.Waiters[0].Since))
	}
	return d
}

// compare orders two records by a key of sorts; what needs attention comes first.
func compare(key string, now time.Time) func(x, y *holdfast.Record) int {
	held := func(r *holdfast.Record) time.Duration {
		if len(r.Holders) == 0 {
			return -1
		}
		return now.Sub(r.Holders[0].Since)
	}
	least := func(r *holdfast.Record) time.Duration {
		left := time.Duration(1<<63 - 1)
		for i := range r.Holders {
			left = min(left, r.Holders[i].Left)
		}
		return left
	}
	pain := func(r *holdfast.Record) float64 { return float64(r.Waiting) * age(r, now).Seconds() }
	return func(x, y *holdfast.Record) int {
		switch key {
		case "name":
			return cmp.Compare(x.Name, y.Name)
		case "waiting":
			return cmp.Or(cmp.Compare(y.Waiting, x.Waiting), cmp.Compare(x.Name, y.Name))
		case "held":
			return cmp.Or(cmp.Compare(held(y), held(x)), cmp.Compare(x.Name, y.Name))
		case "lease":
			return cmp.Or(cmp.Compare(least(x), least(y)), cmp.Compare(x.Name, y.Name))
		}
		return cmp.Or(cmp.Compare(pain(y), pain(x)), cmp.Compare(held(y), held(x)), cmp.Compare(x.Name, y.Name))
	}
}

// now is the list of names.
func (h *console) now(w http.ResponseWriter, r *http.Request) {
	s := h.reader.current(r.Context())
	q := readQuery(r.URL.Query())
	now := time.Now()
	var list []*holdfast.Record
	for i := range s.records {
		if q.wants(&s.records[i]) {
			list = append(list, &s.records[i])
		}
	}
	slices.SortFunc(list, compare(q.Sort, now))
	found := len(list)
	pages := max((found+perPage-1)/perPage, 1)
	q.Page = min(q.Page, pages)
	list = list[(q.Page-1)*perPage : min(q.Page*perPage, found)]
	stuck := map[string]bool{}
	for _, k := range s.graph.knots {
		for _, l := range k.links {
			stuck[l.wish.name] = true
		}
	}
	rows := make([]row, 0, len(list))
	for _, rec := range list {
		rows = append(rows, s.row(rec, now, stuck[rec.Name]))
	}
	p := h.frame(r, "now", "Now", s)
	body := struct {
		Query             query
		Sorts             []struct{ Key, Text string }
		Rows              []row
		Found, From, Last int
		Pages             int
		Prev, Next        string
		Filtered          bool
	}{Query: q, Sorts: sorts, Rows: rows, Found: found, From: min((q.Page-1)*perPage+1, found),
		Last: (q.Page-1)*perPage + len(rows), Pages: pages, Filtered: q.Prefix != "" || q.Label != "" || q.Host != ""}
	if q.Page > 1 {
		body.Prev = q.link(q.Page - 1)
	}
	if q.Page < pages {
		body.Next = q.link(q.Page + 1)
	}
	p.Body = body
	h.show(w, "now.html", p)
}

func lockLink(name string) string { return "lock?name=" + url.QueryEscape(name) }

// row returns what the list shows of a record.
func (s *snapshot) row(r *holdfast.Record, now time.Time, stuck bool) row {
	x := row{Name: shown(r.Name), Link: lockLink(r.Name), Waiting: r.Waiting, Damaged: shown(r.Damaged)}
	if r.Damaged == "" {
		x.Damaged = ""
	}
	switch {
	case r.Kind == "semaphore":
		x.Use = strconv.Itoa(used(r)) + " of " + strconv.Itoa(r.Limit)
	case r.Kind == "latch":
		x.Use = strconv.FormatInt(r.Count, 10) + " to go"
	case len(r.Holders) > 0:
		x.Use = mode(r.Kind, &r.Holders[0])
	}
	thin := false
	for i := range r.Holders {
		l := s.leaseOf(&r.Holders[i])
		if i == 0 || rank(l) > rank(x.Lease) {
			x.Lease = l
		}
		thin = thin || rank(l) > 0
	}
	if all := slices.Concat(r.Holders, r.Partial); len(all) > 0 { // a record has either
		h := &all[0]
		x.HasOne, x.Holder, x.More, x.Held = true, who(h), len(all)-1, heldFor(h, now)
		x.Labels = labels(h.Labels)
		if h.Program != "" {
			x.What = shown(h.Program)
		}
		if h.Note != "" {
			x.What = shown(h.Note)
		}
		if h.Kept {
			x.Flags = append(x.Flags, flag{"", "kept"})
		}
		if h.Partial {
			x.Flags = append(x.Flags, flag{"", "too few servers"})
		}
	}
	if len(r.Waiters) > 0 {
		x.Oldest = short(now.Sub(r.Waiters[0].Since))
	}
	if stuck {
		x.Flags = append(x.Flags, flag{"bad", "deadlock"})
	}
	if thin {
		x.Flags = append(x.Flags, flag{"warn", "lease thin"})
	}
	if r.Waiting >= longQueue {
		x.Flags = append(x.Flags, flag{"warn", "long queue"})
	}
	if r.Damaged != "" {
		x.Flags = append(x.Flags, flag{"bad", "damaged"})
	}
	return x
}

func rank(l lease) int { return map[string]int{"thin": 1, "over": 2}[l.Level] }
