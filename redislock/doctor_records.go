package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

// lookForDamage lists names, up to a limit, and reports records that cannot be read.
func (b *Backend) lookForDamage(ctx context.Context, s *survey, f *doctor.Findings) error {
	const code, most = "redis.records", 1000
	const why = "calls for such a name fail with ErrDamaged until it is removed; no other name is harmed"
	do := "find out what else writes keys with this prefix; delete the name's keys when no program relies on the lock"
	if b.format != nil {
		do += "; a key with the name itself may be another program's data: then give the lock another name"
	}
	run, silence := b.conn.RunAll, error(nil)
	if b.cluster {
		run = func(ctx context.Context, calls []Call) []Result {
			all := b.runApart(ctx, calls, len(s.silent) > 0)
			for i := range all {
				if b.oneSilent(ctx, all[i].Err) {
					silence, all[i].Err = all[i].Err, errLeftOut
				}
			}
			return all
		}
	}
	records, err := b.list(ctx, run, "", "", most)
	if b.oneSilent(ctx, err) {
		silence = err
	}
	if silence != nil {
		f.Add(notTried(code, "whether all records can be read could not be found out", silence))
	}
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

// runApart is RunAll for servers some of which are silent. Each call is an exchange of its own: in one for all,
// a client may wait for the silent servers until the answers of the others are of no use any more.
func (b *Backend) runApart(ctx context.Context, calls []Call, silent bool) []Result {
	if !silent {
		return b.conn.RunAll(ctx, calls)
	}
	ctx, cancel := b.forOne(ctx)
	defer cancel()
	all := make([]Result, len(calls))
	var asked sync.WaitGroup
	for i := range calls {
		asked.Go(func() { all[i] = b.conn.RunAll(ctx, calls[i:i+1])[0] })
	}
	asked.Wait()
	return all
}

// lookForFlushes reports how often somebody has removed all keys, and all locks with them, since the
// server began to count. When that was, the server does not say.
func lookForFlushes(ctx context.Context, s *survey, f *doctor.Findings) {
	const code = "redis.flushes"
	for _, a := range s.Ask(ctx, "INFO", "commandstats") {
		f.Server = a.Server
		if s.silent[a.Server] != nil {
			continue
		}
		if a.Err != nil {
			f.Add(driver.Finding{Code: code, Severity: driver.Unclear,
				Found: fmt.Sprintf("whether somebody has removed all keys could not be found out: %v", a.Err),
				Why:   "FLUSHALL and FLUSHDB remove all locks, also those that are held",
				Do:    "examine it as a user with +info"})
			continue
		}
		stats := fields(a.Value.Text)
		switch all, db := calls(stats["cmdstat_flushall"]), calls(stats["cmdstat_flushdb"]); {
		case all+db > 0:
			f.Add(driver.Finding{Code: code, Severity: driver.Unclear,
				Found: fmt.Sprintf("since the server began to count, all keys were removed: %d calls of FLUSHALL, %d of FLUSHDB", all, db),
				Why:   "each removed all locks of the server or of a database: holders lost theirs, and others may have been granted them at once",
				Do:    "find out who called it and when, and take the right away: ACL SETUSER USER -flushall -flushdb. CONFIG RESETSTAT begins to count again"})
		default:
			f.Fine(code, "nobody has removed all keys since the server began to count (FLUSHALL, FLUSHDB)")
		}
	}
	f.Server = ""
}

// calls returns how often a command was called, from a line of INFO commandstats.
func calls(stat string) int {
	text, _, _ := strings.Cut(strings.TrimPrefix(stat, "calls="), ",")
	n, _ := strconv.Atoi(text) // 0 if it was not called
	return n
}
