package sqlite

import (
	"sort"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Positions in a queue. Places are numbered in order of arrival, and most waiters leave a queue at
// its head.

// ahead counts the places before seq.
func (t *tx) ahead(r *row, seq int64) (n int, err error) {
	first, err := t.unbroken(r)
	if err != nil || first > 0 {
		return int(seq - first), err
	}
	_, err = t.c.get(qAhead, []any{[]byte(r.name), seq}, &n)
	return n, err
}

// unbroken returns the first place's number if no place behind it is missing, else 0. Then numbers
// give positions without counting, however long the queue is.
func (t *tx) unbroken(r *row) (first int64, err error) {
	p, err := readHead(t.c, r)
	if p == nil || r.seq-p.seq+1 != int64(r.waiting) {
		return 0, err
	}
	return p.seq, nil
}

// queuedPlace is a place that renew found in a queue.
type queuedPlace struct {
	change int // index into the changes
	r      *row
	seq    int64
}

// positions fills in the positions of the places that renew found. It reads a queue with gaps and
// many such places once, instead of counting for each. It sets at to the current name.
func (t *tx) positions(found []queuedPlace, changes []driver.Change, at *string) error {
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
