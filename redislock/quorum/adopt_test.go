package quorum

import (
	"errors"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

// A ticket of a grant that has ended is ErrTaken if another client has had the name since, also while
// a server that missed the end still shows the grant with a token of its own. A ticket with a token
// that no server knows is ErrGone.
func TestTokenOfATicket(t *testing.T) {
	h := driver.Hold{Name: "x", ID: "old", Token: 100}
	record := func(list ...driver.Holder) driver.Record { return driver.Record{Name: "x", Holders: list} }
	at := func(id string, token uint64) driver.Holder { return driver.Holder{ID: id, Token: token} }
	kept := at("other", 200)
	kept.Kept = true
	for what, c := range map[string]struct {
		records []driver.Record
		want    error
	}{
		"held":              {[]driver.Record{record(at("old", 100)), record(at("old", 99))}, nil},
		"adopted":           {[]driver.Record{record(at("new", 99)), record(at("new", 100))}, nil},
		"unknown here":      {[]driver.Record{record(), record()}, nil},
		"edited":            {[]driver.Record{record(at("old", 7)), record(at("old", 7))}, driver.ErrGone},
		"one missed it":     {[]driver.Record{record(at("old", 99)), record()}, driver.ErrGone},
		"kept since":        {[]driver.Record{record(at("old", 99)), record(kept)}, driver.ErrGone},
		"taken, one missed": {[]driver.Record{record(at("old", 99)), record(at("other", 200))}, driver.ErrTaken},
		"taken the other way round": {[]driver.Record{record(at("other", 200)), record(at("old", 101))},
			driver.ErrTaken},
		"an older vote": {[]driver.Record{record(at("old", 99)), record(at("other", 50))}, driver.ErrGone},
	} {
		if got := judgeToken(c.records, h, "new"); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}
