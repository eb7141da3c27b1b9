package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/plain"
)

// branch is a process in the tree of who waits for whom.
type branch struct {
	Who     string
	Name    string // for which it waits; "": at the top
	Link    string
	Age     string
	Below   []branch
	Left    int // further ones that are not shown
	Holds   []namedLink
	Blocked int
}

// knotView is a cycle of processes.
type knotView struct {
	Sentences []string
	Advice    string
	Stands    string
	Points    []point
	Arrows    []arrow
	Names     []namedLink
}

type point struct {
	X, Y int
	Text string
	Mark int
}

type arrow struct {
	X1, Y1, X2, Y2 int
	Text           string
	TX, TY         int
}

// graph is who waits for whom.
func (h *console) graph(w http.ResponseWriter, r *http.Request) {
	s := h.reader.current(r.Context())
	p := h.frame(r, "graph", "Who waits for whom", s)
	now := time.Now()
	body := struct {
		Knots, Forming []knotView
		Roots          []branch
		More           int
	}{}
	for _, k := range s.graph.knots {
		body.Knots = append(body.Knots, k.view())
	}
	for _, k := range s.graph.forming {
		body.Forming = append(body.Forming, k.view())
	}
	const most = 50
	for i, root := range s.graph.roots {
		if i == most {
			body.More = len(s.graph.roots) - most
			break
		}
		budget := 200
		b := root.branch(nil, now, map[*party]bool{}, &budget, 0)
		b.Blocked = len(root.known)
		for _, x := range root.holds {
			if len(b.Holds) < 10 {
				b.Holds = append(b.Holds, namedLink{shown(x.name), lockLink(x.name)})
			}
		}
		body.Roots = append(body.Roots, b)
	}
	p.Body = body
	h.show(w, "graph.html", p)
}

// branch returns p with those that wait for what it holds, to a bounded depth and number.
func (p *party) branch(w *wish, now time.Time, above map[*party]bool, budget *int, depth int) branch {
	b := branch{Who: p.who}
	if w != nil {
		b.Name, b.Link, b.Age = shown(w.name), lockLink(w.name), short(now.Sub(w.h.Since))
	}
	above[p] = true
	defer delete(above, p)
	for _, x := range p.behind {
		switch {
		case above[x.party]:
		case *budget == 0 || depth == 8:
			b.Left++
		default:
			*budget--
			b.Below = append(b.Below, x.party.branch(x, now, above, budget, depth+1))
		}
	}
	return b
}

// seenRow is a change in the list of changes.
type seenRow struct {
	Time, Name, Link, Who, Token, Mode, Held string
	Begun                                    bool
}

// seen returns the last changes that keep wants, and since when this console has looked.
func (h *console) seen(most int, keep func(*change) bool) (rows []seenRow, since string) {
	h.reader.mu.Lock()
	list := h.reader.seen.latest(most, keep)
	h.reader.mu.Unlock()
	for _, c := range list {
		x := seenRow{Time: c.At.Format(time.TimeOnly), Name: shown(c.Name), Link: lockLink(c.Name), Who: c.Who,
			Token: tokenText(c.Token), Mode: c.Mode, Begun: c.Begun}
		if !c.Begun {
			x.Held = short(c.Held)
		}
		rows = append(rows, x)
	}
	return rows, h.reader.began.Format("15:04:05 on 2 January")
}

// history is what the readings have shown.
func (h *console) history(w http.ResponseWriter, r *http.Request) {
	s := h.reader.current(r.Context())
	q := readQuery(r.URL.Query())
	p := h.frame(r, "history", "History", s)
	rows, since := h.seen(500, func(c *change) bool {
		return len(c.Name) >= len(q.Prefix) &&
			c.Name[:len(q.Prefix)] == q.Prefix
	})
	p.Body = struct {
		Prefix string
		Rows   []seenRow
		Since  string
	}{q.Prefix, rows, since}
	h.show(w, "history.html", p)
}

// election is a name that a candidate holds or waits for.
type election struct {
	Name, Link, Leader, Address, Who, Term, Since string
	Lease                                         lease
	Candidates                                    []string
	Waiting, Changes                              int
}

func (h *console) elections(w http.ResponseWriter, r *http.Request) {
	s := h.reader.current(r.Context())
	p := h.frame(r, "elections", "Elections", s)
	changes := map[string]int{}
	h.reader.mu.Lock()
	for i := range h.reader.seen.list {
		if c := &h.reader.seen.list[i]; c.Lead && c.Begun {
			changes[c.Name]++
		}
	}
	h.reader.mu.Unlock()
	var list []election
	lead := func(x holdfast.Holder) bool { return leads(&x) }
	for i := range s.records {
		rec := &s.records[i]
		if !slices.ContainsFunc(rec.Holders, lead) && !slices.ContainsFunc(rec.Waiters, lead) {
			continue
		}
		e := election{Name: shown(rec.Name), Link: lockLink(rec.Name), Waiting: rec.Waiting, Changes: changes[rec.Name]}
		if len(rec.Holders) > 0 && !rec.Holders[0].Kept {
			x := &rec.Holders[0]
			e.Leader, e.Who, e.Term = candidate(x), who(x), tokenText(x.Token)
			e.Since, e.Lease = short(time.Since(x.Since)), s.leaseOf(x)
			if a := x.Labels[labelAddress]; a != "" {
				e.Address = shown(a)
			}
		}
		for j := range rec.Waiters {
			if len(e.Candidates) < 10 {
				e.Candidates = append(e.Candidates, candidate(&rec.Waiters[j]))
			}
		}
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b election) int { return cmp.Compare(b.Changes, a.Changes) })
	const most = 500
	p.Body = struct {
		List  []election
		More  int
		Since string
	}{list[:min(len(list), most)], max(len(list)-most, 0), h.reader.began.Format(time.TimeOnly)}
	h.show(w, "elections.html", p)
}

func candidate(h *holdfast.Holder) string {
	if c := h.Labels[labelCandidate]; c != "" {
		return shown(c)
	}
	return who(h)
}

// examination is the last diagnosis of the store.
type examination struct {
	run func(context.Context) ([]driver.Finding, error)

	mu      sync.Mutex
	at      time.Time // when it ended
	list    []driver.Finding
	err     error
	running bool
}

const (
	examineEvery = 5 * time.Minute
	examineLimit = 45 * time.Second
)

// get returns the last diagnosis, and starts another if that is too old.
func (x *examination) get() (list []driver.Finding, at time.Time, err error, running bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.running && (x.at.IsZero() || time.Since(x.at) > examineEvery) {
		x.running = true
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), examineLimit)
			defer cancel()
			list, err := x.run(ctx)
			x.mu.Lock()
			defer x.mu.Unlock()
			x.list, x.err, x.at, x.running = list, err, time.Now(), false
		}()
	}
	return x.list, x.at, x.err, x.running
}

// finding is what the doctor has found.
type finding struct {
	Code, Severity, Level, Server, Found, Why, Do string
}

func (h *console) store(w http.ResponseWriter, r *http.Request) {
	if h.o.Doctor == nil {
		h.fail(w, r, http.StatusNotFound, "This console has no doctor.")
		return
	}
	s := h.reader.current(r.Context())
	p := h.frame(r, "store", "Store", s)
	list, at, err, running := h.exam.get()
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b driver.Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Code, b.Code))
	})
	body := struct {
		Findings []finding
		At       string
		Running  bool
		Failed   string
		Dangers  int
		Read     string
		TTL      string
	}{Running: running, TTL: short(h.c.TTL()), Read: strconv.FormatInt(s.took.Milliseconds(), 10) + " ms"}
	if !at.IsZero() {
		body.At = at.Format(time.TimeOnly)
	}
	if err != nil {
		body.Failed = "The examination could not go on: " + reason(err) + "."
		h.log("doctor", err)
	}
	for _, f := range list {
		v := finding{Code: f.Code, Severity: f.Severity.String(), Level: map[driver.Severity]string{driver.Endangers: "bad",
			driver.Unclear: "warn", driver.Slows: "warn"}[f.Severity], Server: plain.Line(f.Server), Found: plain.Line(f.Found),
			Why: plain.Line(f.Why), Do: plain.Line(f.Do)}
		if f.Danger() {
			body.Dangers++
			v.Level = "bad"
		}
		body.Findings = append(body.Findings, v)
	}
	p.Body = body
	h.show(w, "store.html", p)
}
