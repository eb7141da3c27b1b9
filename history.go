package holdfast

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/driver"
)

// The events of a history.
const (
	HistoryGranted   = "granted"    // somebody got the lock, after waiting for Took
	HistoryAdopted   = "adopted"    // another process took over the grant, by Adopt or Resume
	HistoryReleased  = "released"   // the holder released the lock, after Took
	HistoryHandedOff = "handed off" // the holder offered the grant to another process, after Took
	HistoryLost      = "lost"       // the holder lost the lock, after Took; Reason says why
	HistoryBroken    = "broken"     // an operator took the lock away; Reason has the operator's words
	HistoryAsked     = "asked"      // an operator asked the holder to release; Reason has the operator's words
)

// HistoryEntry is one entry of the history of a name.
type HistoryEntry struct {
	Event  string        // HistoryGranted, …
	At     time.Time     // when it happened: by the store's clock, to about the time of an exchange; see History
	Token  uint64        // of the grant
	By     Holder        // who did it: Host, PID, User, Program, Note, Labels, Shared and Permits
	Took   time.Duration // how long the lock was waited for, or held
	Reason string
}

// String returns one line for people, without the time.
func (e *HistoryEntry) String() string {
	who := e.By.who()
	switch e.Event {
	case HistoryGranted, HistoryReleased, HistoryHandedOff, HistoryLost:
		return fmt.Sprintf("token %d: %s %s after %v%s", e.Token, e.Event, who, round(e.Took), reasonText(e.Reason))
	}
	return fmt.Sprintf("token %d: %s by %s%s", e.Token, oneWord(e.Event), who, reasonText(e.Reason))
}

func reasonText(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + oneWord(reason)
}

// History returns what the store has kept about a name, oldest first: one exchange. Operators'
// breaks and requests are always kept, grants and how they ended only by clients with
// Config.History. A client adds its entries after the store has answered. So an entry may come a
// moment late, and a client that dies adds no more: a grant without an end has expired, or its
// holder still has it. An entry says nothing that the store had not written before.
//
// A release, a break or a request is never later than an exclusive grant that followed it, and a break
// or a request is never later than the end that the holder has recorded. Grants of readers and of
// permits do not tell the order: there a break may come after a grant that it made possible.
//
// Errors: ErrInvalid, ErrUnavailable, ErrUncertain, ErrRefused, ErrDamaged.
func (c *Client) History(ctx context.Context, name string) ([]HistoryEntry, error) {
	err := c.checkName(name)
	var list []HistoryEntry
	if err == nil {
		list, err = c.readHistory(ctx, name)
	}
	if err != nil {
		return nil, &Error{Op: "history", Name: name, Err: explain(ctx, err)}
	}
	return list, nil
}

func (c *Client) readHistory(ctx context.Context, name string) (list []HistoryEntry, err error) {
	var raw []driver.Entry
	err = c.repeatRead(ctx, func() (err error) {
		bctx, cancel := c.bound(ctx)
		defer cancel()
		raw, err = c.store.History(bctx, name)
		return err
	})
	now := time.Now()
	var ends causes
	for _, r := range raw {
		var t historyText
		if json.Unmarshal([]byte(r.Text), &t) == nil && t.Event != "" { // else another program has written it
			list = append(list, t.entry(now.Add(-r.Age)))
			ends.note(&t, list[len(list)-1].At)
		}
	}
	for i := range list {
		ends.bound(&list[i])
	}
	slices.SortStableFunc(list, func(a, b HistoryEntry) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Token, b.Token), cmp.Compare(a.last(), b.last()))
	})
	return list, asRead(err)
}

// causes bounds the times of entries by those of what they caused. The time of an entry is when it was
// added, by the store's clock, less what its client had measured before it sent the entry. So it is late
// by as long as the entry was under way: no client can know that in advance, and a store does not change
// an entry. Tokens tell the order instead.
type causes struct {
	exclusive []HistoryEntry       // their tokens and times; nothing is held beside such a grant
	ended     map[uint64]time.Time // the ends of grants, by token, that the store has confirmed
}

// last is 1 for an entry that comes after all others of its token and time, and 0 for others.
func (e *HistoryEntry) last() int {
	if e.Event == HistoryReleased || e.Event == HistoryLost {
		return 1
	}
	return 0
}

// note notes an entry that others may have caused.
func (c *causes) note(t *historyText, at time.Time) {
	switch {
	case t.Event == HistoryGranted && !t.Shared && t.N == 0:
		c.exclusive = append(c.exclusive, HistoryEntry{Token: t.Token, At: at})
	case t.Event == HistoryReleased,
		t.Event == HistoryLost && (t.Reason == string(ReasonBroken) || t.Reason == string(ReasonEnded)):
		if c.ended == nil {
			c.ended = map[uint64]time.Time{}
		}
		c.ended[t.Token] = at
	}
}

// bound makes e no later than what followed it. Every grant with an earlier token had ended at the store
// when an exclusive one was made. And an operator's act came before the holder's end that the store has
// confirmed: a break ended the grant, and Revoke had seen it.
func (c *causes) bound(e *HistoryEntry) {
	switch e.Event {
	case HistoryBroken, HistoryAsked:
		if at, ok := c.ended[e.Token]; ok && at.Before(e.At) {
			e.At = at
		}
	case HistoryReleased:
	default:
		return
	}
	for _, g := range c.exclusive {
		if g.Token > e.Token && g.At.Before(e.At) {
			e.At = g.At
		}
	}
}

// historyText is an entry as the store keeps it.
type historyText struct {
	Event  string      `json:"event"`
	Name   string      `json:"name,omitempty"` // in the history of the empty name
	Token  uint64      `json:"token,string"`
	By     driver.Info `json:"by"`
	Shared bool        `json:"shared,omitempty"`
	N      int         `json:"n,omitempty"`      // permits
	Took   int64       `json:"took_us,omitzero"` // microseconds
	Ago    int64       `json:"ago_us,omitzero"`  // from the event to this entry, in microseconds
	Reason string      `json:"reason,omitempty"`
	Nonce  string      `json:"nonce,omitempty"` // tells two entries apart that say the same
}

func (t *historyText) entry(added time.Time) HistoryEntry {
	return HistoryEntry{
		Event: t.Event, At: added.Add(-time.Duration(t.Ago) * time.Microsecond), Token: t.Token,
		By: Holder{Host: t.By.Host, PID: t.By.PID, User: t.By.User, Program: t.By.Program, Note: t.By.Note,
			Labels: t.By.Labels, Token: t.Token, Shared: t.Shared, Permits: cmp.Or(t.N, 1)},
		Took: time.Duration(t.Took) * time.Microsecond, Reason: t.Reason,
	}
}

// String encodes t for the store. It leaves out labels, and then the note, if they do not fit.
func (t *historyText) String() string {
	text := t.encode()
	if len(text) > driver.MaxEntry {
		t.By.Labels = nil
		text = t.encode()
	}
	if len(text) > driver.MaxEntry {
		t.By.Note, t.By.Command = "", ""
		text = t.encode()
	}
	return text
}

func (t *historyText) encode() string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)              // it takes six bytes for each of < > &
	if err := e.Encode(t); err != nil { // cannot happen: strings and numbers
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// check returns an ErrInvalid if the words of an operator do not fit into an entry.
func (t historyText) check() error {
	if err := checkReason(t.Reason); err != nil {
		return err
	}
	t.Ago = math.MaxInt64 // the time is not known yet
	if n := len(t.String()); n > driver.MaxEntry {
		return fmt.Errorf("%w reason: with the name and its escapes it takes %d bytes; allowed are %d", ErrInvalid, n,
			driver.MaxEntry)
	}
	return nil
}

// maxReason is how long the words of an operator may be, in bytes.
const maxReason = 1024

func checkReason(reason string) error {
	switch {
	case len(reason) > maxReason:
		return fmt.Errorf("%w reason: it has %d bytes; allowed are %d", ErrInvalid, len(reason), maxReason)
	case !utf8.ValidString(reason):
		return fmt.Errorf("%w reason: it is not valid UTF-8", ErrInvalid)
	}
	return nil
}

// recordGrant adds the grant of l to the history of its name, now or when the store has confirmed it.
func (l *Lease) recordGrant(event string, waited time.Duration) {
	c := l.c
	if c.history.keep == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l.granted = &grantEntry{event: event, waited: waited}
	if !l.pushed {
		l.recordConfirmed()
	}
}

// grantEntry is the entry of a grant.
type grantEntry struct {
	event    string
	waited   time.Duration
	recorded bool
}

// recordConfirmed adds the grant of l, which the store has confirmed, to the history of its name,
// unless it is there. A push alone confirms nothing. Called with c.mu held.
func (l *Lease) recordConfirmed() {
	if g := l.granted; g != nil && !g.recorded {
		g.recorded = true
		l.c.history.add(l, g.event, g.waited, "", time.Since(l.since))
	}
}

// recordEnd adds the end of l's grant to the history of its name. confirmed says that the store has
// confirmed that there was one. sent is when the exchange was sent that ended it.
func (l *Lease) recordEnd(event, reason string, confirmed bool, sent time.Duration) {
	c := l.c
	if c.history.keep == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if confirmed {
		l.recordConfirmed()
	}
	if g := l.granted; g != nil && g.recorded {
		l.granted = nil // it has one end
		ago := c.coarseNow() - sent
		c.history.add(l, event, time.Since(l.since)-ago, reason, ago)
	}
}

// since returns t for an event that was asked for at a reading of coarseNow. An answer may come late, and
// the entry of what followed the event must not seem to be older.
func (c *Client) since(t historyText, sent time.Duration) historyText {
	t.Ago = max(c.coarseNow()-sent, 0).Microseconds()
	return t
}

// addNow adds an entry about what an operator did, and waits for the store.
func (c *Client) addNow(ctx context.Context, name string, keep int, t historyText) error {
	text := t.String()
	err := c.repeatChange(ctx, func() error { // a repeat adds nothing
		bctx, cancel := c.bound(ctx)
		defer cancel()
		return c.store.AddHistory(bctx, name, text, keep)
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		err = explain(ctx, err)
	}
	return err
}
