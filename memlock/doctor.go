package memlock

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Diagnose implements [driver.Diagnoser].
func (*Store) Diagnose(context.Context, time.Duration) ([]driver.Finding, error) {
	return []driver.Finding{{Code: "memory.scope", Severity: driver.Endangers,
		Found: "locks are in the memory of one process",
		Why:   "every process has its own, so two can hold one lock", Do: "another store; this one is for tests"}}, nil
}
