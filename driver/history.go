package driver

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// Limits of a history.
const (
	MaxHistory  = 1000               // entries of one name
	MaxEntry    = 4096               // bytes in an entry
	HistoryLife = 7 * 24 * time.Hour // how long a history lasts after its last entry, at least
)

// Entry is one entry of a history.
type Entry struct {
	Text string
	Age  time.Duration // since it was added; store's clock
}

// CheckEntry returns an ErrInvalid that says what is wrong with the arguments of AddHistory, or nil.
// Backends call it.
func CheckEntry(name, text string, keep int) error {
	if err := CheckHistoryName(name); err != nil {
		return err
	}
	switch {
	case text == "" || len(text) > MaxEntry:
		return fmt.Errorf("%w entry of a history: it has %d bytes; allowed are 1 to %d", ErrInvalid, len(text), MaxEntry)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w entry of a history: it is not valid UTF-8", ErrInvalid)
	case keep < 1 || keep > MaxHistory:
		return fmt.Errorf("%w length of a history, %d: allowed are 1 to %d", ErrInvalid, keep, MaxHistory)
	}
	return nil
}

// CheckHistoryName is CheckName, except that it allows the empty name. Backends call it in History.
func CheckHistoryName(name string) error {
	if name == "" {
		return nil
	}
	return CheckName(name)
}

// A Cause is why a store has no record of a name, as Backend.WhyMissing returns it.
type Cause string

// The causes.
const (
	CauseUnknown   Cause = ""
	CauseEvicted   Cause = "evicted"   // the store removed the record to save memory
	CauseFlushed   Cause = "flushed"   // somebody removed all data
	CauseRestarted Cause = "restarted" // the store has started again without the record
	CauseDeleted   Cause = "deleted"   // somebody removed this record; others exist
)
