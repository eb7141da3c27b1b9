package redislock

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

// lookForFlushes reports how often somebody has removed all keys, and all locks with them, since the
// server began to count. When that was, the server does not say.
func lookForFlushes(ctx context.Context, asker Asker, f *doctor.Findings) {
	const code = "redis.flushes"
	for _, a := range asker.Ask(ctx, "INFO", "commandstats") {
		f.Server = a.Server
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
				Why:   "each removed all locks of the server or of a database: holders lost theirs (forgotten), and others may have been granted them at once",
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
