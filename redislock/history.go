package redislock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// AddHistory implements driver.Backend. Replicas do not confirm an entry (Config.WaitReplicas),
// because no grant depends on it: a failover may forget the last entries.
func (b *Backend) AddHistory(ctx context.Context, name, text string, keep int) error {
	if err := driver.CheckEntry(name, text, keep); err != nil {
		return err
	}
	c := b.keys(name, "h").str(text).end().number(keep).end().
		number(int(driver.HistoryLife / time.Millisecond)).end()
	return verdict(b.run(ctx, b.scripts.addHistory, c))
}

// History implements driver.Backend. A name without a history costs one script, which reads one key
// and writes nothing.
func (b *Backend) History(ctx context.Context, name string) ([]driver.Entry, error) {
	kept, err := b.entries(ctx, name)
	if err != nil || len(kept) == 0 {
		return nil, err
	}
	entries := make([]driver.Entry, len(kept))
	for i, k := range kept {
		entries[i] = k.Entry
	}
	return entries, nil
}

// A KeptEntry is an entry of a history at one server of a quorum.
type KeptEntry struct {
	driver.Entry
	Keep int // the length to which AddHistory cut the history after this entry
}

// Entries is History with the lengths that AddHistory was given.
func (m *Member) Entries(ctx context.Context, name string) ([]KeptEntry, error) {
	return m.entries(ctx, name)
}

func (b *Backend) entries(ctx context.Context, name string) ([]KeptEntry, error) {
	if err := driver.CheckHistoryName(name); err != nil {
		return nil, err
	}
	v, err := b.run(ctx, b.scripts.history, b.keys(name, "h").number(driver.MaxHistory).end())
	if err != nil {
		return nil, err
	}
	return decodeHistory(name, v)
}

// decodeHistory reads the answer of history.lua.
func decodeHistory(name string, v Value) ([]KeptEntry, error) {
	bad := func() ([]KeptEntry, error) {
		return nil, fmt.Errorf("%w: %q: the server's answer is no history: %.200s", driver.ErrDamaged, name, fmt.Sprint(v))
	}
	n := len(v.List)
	switch {
	case v.Kind != List || n > 0 && (n%2 == 0 || v.List[n-1].Kind != Int):
		return bad()
	case n == 0:
		return nil, nil
	}
	now := min(v.List[n-1].Int, maxToken) / 1000
	all := make([]KeptEntry, n/2)
	for i := range all {
		text, score := v.List[2*i], v.List[2*i+1]
		at, keep, ok := cutScore(score.Text)
		if text.Kind != Text || !ok || driver.CheckEntry("", text.Text, keep) != nil {
			return bad()
		}
		age := time.Duration(max(now-at, 0)) * time.Millisecond // the clock may have been set back
		all[i] = KeptEntry{driver.Entry{Text: strings.Clone(text.Text), Age: age}, keep}
	}
	return all, nil
}

// cutScore divides the score of an entry into milliseconds and the length to keep; see layout.go.
func cutScore(score string) (ms int64, keep int, ok bool) {
	n, err := strconv.ParseInt(score, 10, 64)
	if err != nil || n < 0 || n > maxToken {
		return 0, 0, false
	}
	return n / 1000, int(n%1000) + 1, true
}
