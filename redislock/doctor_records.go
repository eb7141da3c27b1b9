package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

// lookForDamage lists names, up to a limit, and reports records that cannot be read.
func (b *Backend) lookForDamage(ctx context.Context, f *doctor.Findings) error {
	const code, most = "redis.records", 1000
	const why, do = "calls for such a name fail with ErrDamaged until it is removed; no other name is harmed",
		"find out what else writes keys with this prefix; delete the name's keys when no program relies on the lock"
	records, err := b.List(ctx, "", "", most)
	if errors.Is(err, driver.ErrDamaged) {
		f.Add(driver.Finding{Code: code, Severity: driver.Slows, Found: err.Error(), Why: "names cannot be listed", Do: do})
		return nil
	}
	if unanswered(err) {
		return nil // an unreachable server is a finding of its own
	}
	if err != nil {
		return fmt.Errorf("listing names: %w", err)
	}
	var damaged []string
	for _, r := range records {
		if r.Damaged != "" {
			damaged = append(damaged, fmt.Sprintf("%q (%s)", r.Name, r.Damaged))
		}
	}
	if len(damaged) == 0 {
		f.Fine(code, "the records of %d names can be read", len(records))
		return nil
	}
	f.Add(driver.Finding{Code: code, Severity: driver.Slows, Why: why, Do: do,
		Found: fmt.Sprintf("of %d records %d cannot be read: %s", len(records), len(damaged),
			strings.Join(damaged[:min(len(damaged), 3)], ", "))})
	return nil
}
