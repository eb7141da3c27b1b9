package sqlite

import (
	"errors"
	"fmt"
	"math"

	"github.com/holdfast-lock/holdfast/driver"
)

// SQLite stores any value in a column, whatever the column's type is. So a row that another program
// wrote can have a text for a time, or impossible sums. Calls for its name fail; statements that
// touch many names skip it.

// unreadable makes a scan error of a wrongly typed value an error of the name's record.
func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", driver.ErrDamaged, err)
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", driver.ErrDamaged, fmt.Sprintf(format, args...))
}

// check reports a row that no transaction of ours can have written.
func (r *row) check() error {
	switch {
	case r.kind > driver.Latch:
		return damaged("the kind %d does not exist", r.kind)
	case r.limit < 0 || r.count < 0 || r.holders < 0 || r.used < 0 || r.waiting < 0 || r.seq < 0:
		return damaged("a number is negative: limit %d, count %d, holders %d, permits %d, waiting %d, places %d",
			r.limit, r.count, r.holders, r.used, r.waiting, r.seq)
	case r.token < 0 || r.token >= max(r.ceiling, 1):
		return damaged("the token %d was never given out", r.token)
	case r.x.id != "" && (r.kind != driver.Lock || r.holders > 0):
		return damaged("an exclusive grant with %d others of kind %d", r.holders, r.kind)
	case r.holders+r.waiting > 0 && r.kind != driver.Lock && r.kind != driver.Semaphore:
		return damaged("%d holders and %d waiters of kind %d", r.holders, r.waiting, r.kind)
	case r.head.seq != 0:
		return r.head.check()
	}
	return nil
}

// check reports a grant or place that no transaction of ours can have written.
func (g *grant) check() error {
	most := math.MaxInt32
	if g.mode == driver.Exclusive {
		most = driver.MaxTokens
	}
	if g.mode < driver.Exclusive || g.mode > driver.Permits || g.n < 1 || g.n > most {
		return damaged("a request of mode %d for %d", g.mode, g.n)
	}
	return nil
}

// skipDamaged runs do until it finds no further damaged record. do skips the given names, and
// returns the name at which it failed.
func skipDamaged(do func(damaged map[string]bool) (name string, err error)) (map[string]bool, error) {
	out := map[string]bool{}
	for {
		name, err := do(out)
		if !errors.Is(err, driver.ErrDamaged) || out[name] {
			return out, err
		}
		out[name] = true
	}
}
