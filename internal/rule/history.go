package rule

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Histories are the histories of names in memory (R20). The zero value has none. It is not safe for
// concurrent use.
type Histories struct {
	entries map[string][]historyEntry // no list is empty
}

type historyEntry struct {
	text string
	at   time.Duration // when it was added
}

// Add implements driver.Backend.AddHistory.
func (h *Histories) Add(now time.Duration, name, text string, keep int) error {
	if err := driver.CheckEntry(name, text, keep); err != nil {
		return err
	}
	h.dropOld(now)
	list := h.entries[name]
	if slices.ContainsFunc(list, func(e historyEntry) bool { return e.text == text }) {
		return nil
	}
	if h.entries == nil {
		h.entries = map[string][]historyEntry{}
	}
	list = append(list, historyEntry{text, now})
	h.entries[name] = slices.Clone(list[max(0, len(list)-keep):])
	return nil
}

// Read implements driver.Backend.History.
func (h *Histories) Read(now time.Duration, name string) (entries []driver.Entry, err error) {
	if err := driver.CheckHistoryName(name); err != nil {
		return nil, err
	}
	h.dropOld(now)
	for _, e := range h.entries[name] {
		entries = append(entries, driver.Entry{Text: e.text, Age: max(0, now-e.at)})
	}
	return entries, nil
}

// dropOld drops the histories to which nothing was added for HistoryLife.
func (h *Histories) dropOld(now time.Duration) {
	for name, list := range h.entries {
		if now-list[len(list)-1].at > driver.HistoryLife {
			delete(h.entries, name)
		}
	}
}
