package redislock

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// WhyMissing implements driver.Backend. It compares what INFO says with what is left of the shard.
// The answer is likely, not certain: a server counts evictions and FLUSHALL, but does not record
// when they happened. The cause is unknown if the user may not run INFO, and mostly after a
// failover, which may have forgotten the record, too. Errors: those of Inspect.
func (b *Backend) WhyMissing(ctx context.Context, name string, held time.Duration) (driver.Cause, error) {
	if err := driver.CheckName(name); err != nil {
		return driver.CauseUnknown, err
	}
	v, err := b.run(ctx, b.scripts.missing, b.keys(name, "lih").str(name).end())
	if err != nil {
		return driver.CauseUnknown, err
	}
	l, ok := decodeLoss(v)
	if !ok {
		return driver.CauseUnknown, nil
	}
	return l.cause(held), nil
}

// loss is what a server knows that may explain why a record is gone.
type loss struct {
	up      time.Duration // since the server started, or up to a second more
	evicted int64         // keys, since then
	flushed int64         // how often all data of a database were removed since then
	limit   int64         // maxmemory
	used    int64         // memory
	policy  string        // of eviction
	copied  bool          // its data may have come from another server, which then failed or handed over
	again   bool          // the name has a record again
	indexed bool          // the shard's index has the name
	oldest  time.Duration // since the oldest entry of the name's history was added; 0: none
}

// decodeLoss reads the answer of missing.lua. It returns false if the server does not tell.
func decodeLoss(v Value) (l loss, ok bool) {
	const numbers = 9
	if len(v.List) != numbers+2 || v.List[0].Int < 0 {
		return l, false
	}
	n := func(i int) int64 { return v.List[i].Int }
	l = loss{
		up: time.Duration(n(0)) * time.Second, evicted: n(1), flushed: n(2), limit: n(3), used: n(4),
		copied: n(5) == 1, again: n(6) == 1, indexed: n(7) == 1, policy: v.List[numbers].Text,
	}
	if at, _, ok := cutScore(v.List[numbers+1].Text); ok {
		l.oldest = time.Duration(n(8)/1000-at) * time.Millisecond
	}
	return l, true
}

// cause returns the likely cause of a loss of a record that existed held ago.
func (l loss) cause(held time.Duration) driver.Cause {
	evicts := l.evicted > 0 && l.limit > 0 && l.policy != "" && l.policy != "noeviction"
	full := l.used > l.limit/10*9
	// The index outlives a record. So if it has the name, and the record was not made again since,
	// other data of the shard are older than the loss. So they are if the history is.
	survived := l.indexed && !l.again || l.oldest > held
	switch {
	case l.flushed > 0 && !survived && !l.copied && !(evicts && full):
		return driver.CauseFlushed
	case max(l.up-time.Second, 0) < held: // the server counts the seconds that its clock has begun
		return driver.CauseRestarted
	case evicts:
		return driver.CauseEvicted
	case l.copied:
		return driver.CauseUnknown
	case survived || l.indexed && l.flushed == 0: // no other cause is left
		return driver.CauseDeleted
	}
	return driver.CauseUnknown
}
