package history

import (
	"cmp"
	"io"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// maxDrawn is how many operations a picture shows.
const maxDrawn = 200

// Draw writes a page (HTML) of the violation v. It shows at most 200 operations of the lock near
// it, as Porcupine draws them, the assertions, and the faults. The page needs no network.
func (r *Report) Draw(w io.Writer, v Violation) error {
	c := &checker{Options: r.opt, table: r.table}
	name := int32(slices.Index(c.names, v.Name))
	win := &window{name: v.Name}
	begin, end := int64(math.MaxInt64), int64(0)
	for _, e := range v.Events {
		begin, end = min(begin, e.T), max(end, e.T)
	}
	if name >= 0 {
		win = c.around(name, v.Events, begin, end)
	}
	rows := win.rows()
	for _, o := range win.ops {
		begin, end = min(begin, o.Call), max(end, o.Return)
	}
	_, info := porcupine.CheckOperationsVerbose(win.model(), win.ops, r.opt.Timeout)
	info.AddAnnotations(c.annotations(v, begin, end, rows))
	return porcupine.Visualize(win.model(), info, w)
}

// around returns a window with the attempts of the events, or else around their time.
func (c *checker) around(name int32, events []Event, begin, end int64) *window {
	list, ordered := c.ordered(name)
	if !ordered {
		list = c.byGranted[name]
	}
	involved := map[string]bool{}
	for _, e := range events {
		if e.ID != "" {
			involved[e.ID] = true
		}
	}
	from, to := len(list), 0
	for i, a := range list {
		at := c.attempts[a].grantedAt
		if involved[c.id(a)] || len(involved) == 0 && at >= begin && at <= end {
			from, to = min(from, i), max(to, i+1)
		}
	}
	if from > to {
		to = slices.IndexFunc(list, func(a int32) bool { return c.attempts[a].grantedAt >= begin })
		if to < 0 {
			to = len(list)
		}
		from = to
	}
	const most = maxDrawn / 2 // grants: each has an end
	more := max(0, min(20, most-(to-from))/2)
	from, to = max(0, from-more), min(len(list), to+more)
	to = min(to, from+most)
	win := &window{name: c.names[name], ordered: ordered}
	for seq, a := range list[from:to] {
		win.add(c, a, int32(seq))
	}
	win.bound()
	return win
}

// rows gives every attempt of the window a row of its own while it lasts, and returns it. The
// operations of a row must not overlap; it uses as few rows as possible.
func (w *window) rows() map[int32]int {
	type life struct {
		begin, end int64
		ops        []int
	}
	lives := map[int32]*life{}
	for i, o := range w.ops {
		a := o.Input.(*op).a
		if lives[a] == nil {
			lives[a] = &life{o.Call, o.Return, nil}
		}
		l := lives[a]
		l.begin, l.end, l.ops = min(l.begin, o.Call), max(l.end, o.Return), append(l.ops, i)
	}
	order := make([]int32, 0, len(lives))
	for a := range lives {
		order = append(order, a)
	}
	slices.SortFunc(order, func(x, y int32) int {
		return cmp.Or(cmp.Compare(lives[x].begin, lives[y].begin), cmp.Compare(x, y))
	})
	rows := map[int32]int{}
	var free []int64 // when each pair of rows is free
	for _, a := range order {
		l := lives[a]
		row := slices.IndexFunc(free, func(t int64) bool { return t < l.begin })
		if row < 0 {
			row = len(free)
			free = append(free, 0)
		}
		free[row] = l.end
		rows[a] = 2 * row
		for _, i := range l.ops {
			w.ops[i].ClientId = 2 * row
			// The window of an end may start before its grant's end.
			if w.ops[i].Input.(*op).kind != opGrant {
				w.ops[i].ClientId++
			}
		}
	}
	return rows
}

func (c *checker) annotations(v Violation, begin, end int64, rows map[int32]int) (list []porcupine.Annotation) {
	for i := range c.faults {
		f := &c.faults[i]
		if f.begin > end || f.end < begin {
			continue
		}
		e := c.at(f.event)
		list = append(list, porcupine.Annotation{Tag: "faults", Start: max(f.begin, begin), End: min(f.end, end),
			Description: e.Text + " " + e.Target, Details: e.describe(0), BackgroundColor: "#f8d7da"})
	}
	for i := range v.Events {
		e := &v.Events[i]
		switch e.Kind {
		case Acquire, Queued, Release, Released, Downgrade, Downgraded:
			continue // they are the operations
		}
		tag := e.Client
		if tag == "" {
			tag = "store"
		}
		list = append(list, porcupine.Annotation{Tag: tag, Start: e.T, End: e.T, Description: e.Kind.String(),
			Details: e.describe(begin), BackgroundColor: "#fff3cd"})
	}
	if len(rows) == 0 && len(list) == 0 {
		list = append(list, porcupine.Annotation{Tag: "violation", Start: begin, End: begin, Description: v.Text})
	}
	return list
}
