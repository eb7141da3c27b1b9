package postgres

import (
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// DialectAt is Dialect with another clock: an expression in microseconds.
func DialectAt(now string) sqllock.Dialect { return newDialect(now) }

// IdleAfter is Dialect for a process that keeps listening for idle without waiters.
func IdleAfter(idle time.Duration) sqllock.Dialect {
	d := newDialect(now)
	d.idle = idle
	return d
}

// Edited is DialectAt with text replaced in its statements, and whether any statement contained it.
func Edited(now, old, text string) (sqllock.Dialect, bool) {
	d, found := newDialect(now), false
	for _, s := range []*string{&d.try, &d.wait, &d.hand, &d.leave, &d.renew} {
		found = found || strings.Contains(*s, old)
		*s = strings.ReplaceAll(*s, old, text)
	}
	return d, found
}
