package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// AddHistory implements driver.Backend. Every server that can be reached adds the entry; it is added
// when a majority has it. ErrUncertain: fewer have it, so some calls of History may return it.
func (b *Backend) AddHistory(ctx context.Context, name, text string, keep int) error {
	if err := driver.CheckEntry(name, text, keep); err != nil {
		return err
	}
	var somewhere atomic.Bool
	_, _, err := query(ctx, b, func(ctx context.Context, m *redislock.Member) (struct{}, error) {
		err := m.AddHistory(ctx, name, text, keep)
		if err == nil || errors.Is(err, driver.ErrUncertain) {
			somewhere.Store(true)
		}
		return struct{}{}, err
	})
	if err != nil && somewhere.Load() && !errors.Is(err, driver.ErrClosed) && !errors.Is(err, driver.ErrUncertain) {
		// ErrRefused and ErrUnavailable would mean that no history has it.
		return &failure{driver.ErrUncertain, "some servers may have the entry", []error{err}}
	}
	return err
}

// A list is the history of a name at one server.
type list struct {
	entries []redislock.KeptEntry
	at      time.Time // when their ages were measured
}

// History implements driver.Backend. It merges the histories of a majority or more. So it has every
// entry that a majority has, unless a server lost its data since. Entries are in the order in which
// servers added them. If no server has both of two entries, their ages decide, which are exact to
// within an exchange.
func (b *Backend) History(ctx context.Context, name string) ([]driver.Entry, error) {
	if err := driver.CheckHistoryName(name); err != nil {
		return nil, err
	}
	lists, _, err := query(ctx, b, func(ctx context.Context, m *redislock.Member) (list, error) {
		sent := time.Now()
		entries, err := m.Entries(ctx, name)
		return list{entries, sent.Add(time.Since(sent) / 2)}, err
	})
	if err != nil {
		return nil, err
	}
	return mergeHistories(lists, time.Now()), nil
}

// mergeHistories makes one history of those of several servers. An entry that one server has before
// another stays before it, unless other servers say the opposite: then most of them count. Ages
// decide only if that leaves a choice.
func mergeHistories(lists []list, now time.Time) []driver.Entry {
	position := make([]map[string]int, len(lists))
	ages := map[string][]time.Duration{}
	for i, l := range lists {
		position[i] = map[string]int{}
		for k, e := range l.entries {
			position[i][e.Text] = k
			ages[e.Text] = append(ages[e.Text], e.Age+max(0, now.Sub(l.at)))
		}
	}
	age := make(map[string]time.Duration, len(ages))
	for text, all := range ages {
		slices.SortFunc(all, func(a, b time.Duration) int { return cmp.Compare(b, a) })
		age[text] = all[(len(all)-1)/2] // one server may have got it late, or its clock may have been set
	}

	var merged []driver.Entry
	next, done := make([]int, len(lists)), map[string]bool{}
	for {
		for i, l := range lists {
			for next[i] < len(l.entries) && done[l.entries[next[i]].Text] {
				next[i]++
			}
		}
		var first *redislock.KeptEntry
		fewest := 0
		for i, l := range lists {
			if next[i] == len(l.entries) {
				continue
			}
			e := &l.entries[next[i]]
			before := 0 // servers that have another entry before e
			for j := range lists {
				if k, has := position[j][e.Text]; has && k > next[j] {
					before++
				}
			}
			if first == nil || before < fewest || before == fewest && age[e.Text] > age[first.Text] {
				first, fewest = e, before
			}
		}
		if first == nil {
			break
		}
		done[first.Text] = true
		merged = append(merged, driver.Entry{Text: first.Text, Age: age[first.Text]})
		// Each server has cut its history, but one that missed an entry has kept an older one.
		merged = merged[max(0, len(merged)-first.Keep):]
	}
	for i := len(merged) - 2; i >= 0; i-- { // the servers' clocks differ
		merged[i].Age = max(merged[i].Age, merged[i+1].Age)
	}
	return slices.Clip(merged)
}

// WhyMissing implements driver.Backend. It returns what a majority of the servers says.
func (b *Backend) WhyMissing(ctx context.Context, name string, held time.Duration) (driver.Cause, error) {
	if err := driver.CheckName(name); err != nil {
		return driver.CauseUnknown, err
	}
	causes, _, err := query(ctx, b, func(ctx context.Context, m *redislock.Member) (driver.Cause, error) {
		return m.WhyMissing(ctx, name, held)
	})
	if err != nil {
		return driver.CauseUnknown, fmt.Errorf("why the record is missing: %w", err)
	}
	count := map[driver.Cause]int{}
	for _, c := range causes {
		if count[c]++; count[c] >= b.need() {
			return c, nil
		}
	}
	return driver.CauseUnknown, nil
}
