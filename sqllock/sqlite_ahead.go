package sqllock

import (
	"sort"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Where in line a place stands. Places are numbered as they come, and most lines are only
// left at their head.

// ahead counts those before the place seq.
func (t *tx) ahead(r *row, seq int64) (n int, err error) {
	first, err := t.unbroken(r)
	if err != nil || first > 0 {
		return int(seq - first), err
	}
	_, err = t.c.get(qAhead, []any{[]byte(r.name), seq}, &n)
	return n, err
}

// unbroken returns the first place in line if nobody has left the line behind it, else 0.
// Then numbers are positions and nothing has to be counted, however long the line is.
func (t *tx) unbroken(r *row) (first int64, err error) {
	p, err := readHead(t.c, r)
	if p == nil || r.seq-p.seq+1 != int64(r.waiting) {
		return 0, err
	}
	return p.seq, nil
}

// standing is a place that renew found in line.
type standing struct {
	change int // index into the changes
	r      *row
	seq    int64
}

// stand fills in how the places found by renew stand. A line with gaps and many of them is
// read once, not counted for each.
// at is set to the name that is looked at.
func (t *tx) stand(found []standing, changes []driver.Change, at *string) error {
	type line struct {
		retry time.Duration
		found int
		seqs  []int64
	}
	lines := map[*row]*line{}
	for _, f := range found {
		l := lines[f.r]
		*at = f.r.name
		if l == nil {
			d, err := retry(t.c, f.r, t.now)
			if err != nil {
				return err
			}
			l = &line{retry: d}
			lines[f.r] = l
		}
		l.found++
	}
	for _, f := range found {
		l, ch := lines[f.r], &changes[f.change]
		*at = f.r.name
		ch.Retry = l.retry
		first, err := t.unbroken(f.r)
		if err != nil {
			return err
		}
		if first > 0 || l.found <= 4 {
			if ch.Ahead, err = t.ahead(f.r, f.seq); err != nil {
				return err
			}
			continue
		}
		if l.seqs == nil {
			err = t.c.each(qLine, []any{[]byte(f.r.name)}, func(scan func(...any) error) error {
				var seq int64
				err := scan(&seq)
				l.seqs = append(l.seqs, seq)
				return err
			})
			if err != nil {
				return err
			}
		}
		ch.Ahead = sort.Search(len(l.seqs), func(i int) bool { return l.seqs[i] >= f.seq })
	}
	return nil
}
