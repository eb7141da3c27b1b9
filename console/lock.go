package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/plain"
)

// card is one holder or waiter on the page of its lock.
type card struct {
	Who      string
	Host     string // raw, for the filter
	HostLink string
	Facts    [][2]string
	Mode     string
	Age      string
	Lease    lease
	Token    string
	Kept     bool
	Partial  bool        // at too few servers of a quorum
	Waits    []namedLink // what its process waits for elsewhere
	Holds    []namedLink
	Asked    []string
	Break    string // address of the form; "": not allowed
	Revoke   string // the same
}

type namedLink struct{ Name, Link string }

// lockPage is the page of one lock.
type lockPage struct {
	Name     string
	Raw      string
	Kind     string
	Why      string
	Bad      bool
	Held     int    // holders
	Holders  []card // the first of them
	Waiters  []card
	Waiting  int
	Facts    [][2]string
	Commands []string
	Past     []pastRow // from the store
	PastLost bool
	Seen     []seenRow
	Since    string
	Damaged  string
}

// lock is the page of one name. It reads that name by itself, so it is as current as it can be.
func (h *console) lock(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	s := h.reader.current(r.Context())
	look := h.looks.get(r.Context(), name)
	rec, at, err := look.rec, look.at, look.err
	p := h.frame(r, "now", shown(name), s)
	switch {
	case errors.Is(err, holdfast.ErrInvalid):
		h.fail(w, r, http.StatusBadRequest, "This is not the name of a lock. A name has 1 to 512 bytes of UTF-8.")
		return
	case errors.Is(err, holdfast.ErrDamaged):
		p.Body = lockPage{Name: shown(name), Damaged: plain.Line(err.Error())}
		h.show(w, "lock.html", p)
		return
	case err != nil:
		h.log("inspect", err)
		old := s.get(name)
		if old == nil {
			p.Status, p.Body = http.StatusServiceUnavailable, lockPage{Name: shown(name),
				Why: "The state of this name is not known: " +
					reason(err) + "."}
			h.show(w, "lock.html", p)
			return
		}
		rec, at = *old, s.at
		p.Stale = "This is the reading of " + s.at.Format(time.TimeOnly) + ". Since then " + reason(err) + "."
		if rec.Damaged != "" {
			p.Body = lockPage{Name: shown(name), Damaged: plain.Line(rec.Damaged)}
			h.show(w, "lock.html", p)
			return
		}
	case p.Stale != "": // of the list
		p.Stale = "The other names on this page are of " + s.at.Format(time.TimeOnly) + "."
		if s.at.IsZero() {
			p.Stale = "Nothing is known of other names."
		}
	}
	p.Read = at.Format(time.TimeOnly)
	body := s.lockPage(&rec, at, p.User != "")
	body.addPast(look.past)
	body.PastLost = look.lost != nil
	body.Seen, body.Since = h.seen(50, func(c *change) bool { return c.Name == name })
	p.Body = body
	h.show(w, "lock.html", p)
}

// pastRow is an entry of the history that the store has kept.
type pastRow struct{ Time, Event, Who, Token, Took, Reason string }

// maxPast is how many entries the page shows.
const maxPast = 100

// addPast adds what the store has kept, the last first, and to each holder who has asked it to
// release.
func (b *lockPage) addPast(past []holdfast.HistoryEntry) {
	for _, e := range slices.Backward(past) {
		x := pastRow{Time: e.At.Format(time.DateTime), Event: plain.Line(e.Event), Who: who(&e.By), Token: tokenText(e.Token)}
		if e.Took > 0 {
			x.Took = short(e.Took)
		}
		if e.Reason != "" {
			x.Reason = shown(e.Reason)
		}
		if e.Event == holdfast.HistoryAsked {
			for i := range b.Holders {
				if c := &b.Holders[i]; c.Token == x.Token && !c.Kept {
					c.Asked = append(c.Asked, strings.TrimSpace(x.Time+" "+x.Reason))
				}
			}
		}
		if len(b.Past) < maxPast {
			b.Past = append(b.Past, x)
		}
	}
}

// maxCards is how many holders the page of a lock shows: a semaphore may have any number.
const maxCards = 100

func (s *snapshot) lockPage(r *holdfast.Record, now time.Time, mayChange bool) lockPage {
	b := lockPage{Name: shown(r.Name), Raw: r.Name, Kind: r.Kind, Waiting: r.Waiting}
	b.Why, b.Bad = s.why(r)
	b.Held = len(r.Holders)
	for i := range r.Holders[:min(b.Held, maxCards)] {
		b.Holders = append(b.Holders, s.card(r, &r.Holders[i], now, mayChange))
	}
	for i := range r.Partial { // nobody may break them
		b.Holders = append(b.Holders, s.card(r, &r.Partial[i], now, false))
	}
	for i := range r.Waiters {
		b.Waiters = append(b.Waiters, s.card(r, &r.Waiters[i], now, false))
	}
	fact := func(k, v string) { b.Facts = append(b.Facts, [2]string{k, v}) }
	switch r.Kind {
	case "semaphore":
		fact("permits", strconv.Itoa(used(r))+" of "+strconv.Itoa(r.Limit)+" in use")
		if r.LimitSet {
			fact("limit", "set, until it is cleared")
		}
	case "latch":
		fact("count", strconv.FormatInt(r.Count, 10)+" to go")
	}
	if r.Token != 0 {
		fact("highest token", tokenText(r.Token))
	}
	if quoted := shellWord(r.Name); quoted != "" {
		b.Commands = append(b.Commands, "holdfast info "+quoted, "holdfast history "+quoted)
		for i := range r.Holders {
			if t := r.Holders[i].Token; t != 0 && len(b.Commands) < 6 {
				b.Commands = append(b.Commands, "holdfast revoke --token "+tokenText(t)+" "+quoted,
					"holdfast break --token "+tokenText(t)+" "+quoted)
			}
		}
	}
	return b
}

func (s *snapshot) card(r *holdfast.Record, h *holdfast.Holder, now time.Time, mayBreak bool) card {
	c := card{Who: who(h), Host: h.Host, Mode: mode(r.Kind, h), Age: heldFor(h, now), Lease: s.leaseOf(h),
		Token: tokenText(h.Token), Kept: h.Kept, Partial: h.Partial}
	if h.Host != "" {
		c.HostLink = query{Host: h.Host, Sort: "pain"}.link(1)
	}
	for _, f := range [][2]string{{"note", h.Note}, {"program", h.Program}, {"user", h.User}, {"host", h.Host}} {
		if f[1] != "" {
			c.Facts = append(c.Facts, [2]string{f[0], shown(f[1])})
		}
	}
	if h.PID != 0 {
		c.Facts = append(c.Facts, [2]string{"pid", strconv.Itoa(h.PID)})
	}
	if l := labels(h.Labels); len(l) > 0 {
		c.Facts = append(c.Facts, [2]string{"labels", strings.Join(l, " ")})
	}
	if p := s.graph.parties[keyOf(h)]; p != nil && h.Token != 0 {
		for _, w := range p.waits {
			if w.name != r.Name && len(c.Waits) < 10 {
				c.Waits = append(c.Waits, namedLink{shown(w.name), lockLink(w.name)})
			}
		}
	}
	if mayBreak && h.Token != 0 {
		q := url.Values{"name": {r.Name}, "token": {c.Token}}.Encode()
		c.Break = "break?" + q
		if !h.Kept {
			c.Revoke = "revoke?" + q
		}
	}
	return c
}
