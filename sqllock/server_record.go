package sqllock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
)

// Columns of hf_lock, as load reads them. Times are microseconds of the server's clock.
//
// An exclusive grant is always alone on its name. It lives in columns (hid to info), where one
// statement can take, renew, release and hand over. All other grants, and callers that await a
// latch, are text in more. The queue is text in line, with an item for each place. Statements hand
// over to the first item if it wants an exclusive grant. Package rule decides all rarer cases:
// Server reads the row and writes it back. counter is that of a latch, or 1 for a semaphore whose
// limit is set: the sweep keeps both.
const recordColumns = `name, kind, lim, counter, token, ver, at, hid, hsession, since, expires, keep, kept, info, due, line, more`

// record is one row of hf_lock: the state of one name.
type record struct {
	name   string
	exists bool
	ver    int64
	floor  int64 // tokens are larger than this, whatever the row contains
	lossy  bool  // a crash of the server may lose a release
	now    int64 // server's clock at the start of the statement that read the row
	at     int64 // server's clock at the last write
	entry  rule.Entry
	grants []rule.Grant // to announce after the write
	cols   columns      // as read
	was    rule.Entry   // its grants and queue, as read

	damaged error // why the row cannot be read; entry is empty then
}

// maxToken is far beyond any token that a clock makes, and far below what a column can hold.
const maxToken = 1 << 62

// columns are a row's form of its rule.Entry.
type columns struct {
	kind, limit                int
	counter, token             int64
	hid, hsession              string
	since, expires, keep, kept int64
	info                       string
	waiting                    int
	due                        int64 // no place expires earlier; 0: the queue is empty
	line, more                 string
}

func micros(d time.Duration) int64 { return d.Microseconds() }

func ofMicros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// scan reads a row of recordColumns and the server's clock.
func (r *record) scan(row interface{ Scan(...any) error }) error {
	c := &r.cols
	var name []byte
	err := row.Scan(&name, &c.kind, &c.limit, &c.counter, &c.token, &r.ver, &r.at, &c.hid, &c.hsession, &c.since,
		&c.expires, &c.keep, &c.kept, &c.info, &c.due, &c.line, &c.more, &r.now)
	if err != nil {
		return err
	}
	r.name, r.exists = string(name), true
	r.decode()
	r.was.Holds, r.was.Line = slices.Clone(r.entry.Holds), slices.Clone(r.entry.Line)
	return nil
}

// decode makes the entry from the columns. If it cannot, damaged has the reason.
func (r *record) decode() {
	if err := r.tryDecode(); err != nil {
		r.damaged = fmt.Errorf("%w: table hf_lock, name %q: %w", driver.ErrDamaged, r.name, err)
		r.entry = rule.Entry{Mint: r.mint, Done: map[string]bool{}}
	}
}

func (r *record) tryDecode() error {
	c, e := &r.cols, &r.entry
	*e = rule.Entry{Kind: driver.Kind(c.kind), Limit: c.limit, Last: uint64(c.token), Count: c.counter, Mint: r.mint,
		Done: map[string]bool{}}
	if e.Kind == driver.Semaphore {
		e.Set, e.Count = c.counter > 0, 0
	}
	switch {
	case c.kind < 0 || e.Kind > driver.Latch:
		return fmt.Errorf("kind is %d", c.kind)
	case c.limit < 0 || c.counter < 0 || c.token < 0:
		return fmt.Errorf("a column is negative: lim %d, counter %d, token %d", c.limit, c.counter, c.token)
	case c.token > maxToken:
		return fmt.Errorf("token %d: no larger one can follow", c.token)
	case c.hid != "" && (e.Kind != driver.Lock || c.more != ""):
		return fmt.Errorf("exclusive holder (hid) in a row with kind %d and %d bytes in more: allowed are kind 1 and none",
			c.kind, len(c.more))
	}
	if c.hid != "" {
		info, err := Unescape(c.info)
		if err != nil {
			return fmt.Errorf("info: %w", err)
		}
		h := rule.Hold{
			Request: driver.Request{ID: c.hid, Name: r.name, Mode: driver.Exclusive, N: 1, Info: info},
			Session: c.hsession, Token: uint64(c.token), Since: ofMicros(c.since),
			Expires: ofMicros(c.expires), KeepUntil: ofMicros(c.keep), Kept: c.kept != 0,
		}
		e.Holds = append(e.Holds, h)
	}
	for line := range strings.Lines(c.line) {
		p, err := parsePlace(line)
		if err != nil {
			return fmt.Errorf("line: %w", err)
		}
		p.Name, p.Limit = r.name, c.limit
		e.Line = append(e.Line, p)
	}
	c.waiting = len(e.Line)
	// Statements leave due earlier than the first expiry. While due lies ahead, that alone is no
	// reason to write the row.
	if due := firstDue(e.Line); c.due > r.now && c.due <= due {
		c.due = due
	}
	for line := range strings.Lines(c.more) {
		if err := r.parseMore(line); err != nil {
			return fmt.Errorf("more: %w", err)
		}
	}
	return nil
}

// recall restores the hand-over to h, if a crash of the server has lost it. The dialects allow such
// a loss: the row then still has the place in the queue, until the time for which h's holder may
// trust its lease. No later grant can have happened, since the last token would be larger. Places
// ahead had expired at the hand-over. Only hand-overs with tokens of the clock can be lost; a
// larger token is forged. So is one whose block would not lie above the last token. Where releases are
// never lost, every such token is forged.
func (r *record) recall(h driver.Hold) {
	if !r.lossy {
		return
	}
	e := &r.entry
	i := slices.IndexFunc(e.Line, func(p rule.Place) bool { return p.ID == h.ID })
	if i < 0 || h.Token > uint64(max(r.now, 0)) || h.Token < e.Last+uint64(e.Line[i].Block()) ||
		e.Line[i].Mode != driver.Exclusive || e.Line[i].Deadline <= ofMicros(r.now) {
		return
	}
	p := e.Line[i]
	since := min(ofMicros(int64(h.Token)), ofMicros(r.now)) // tokens are usually the time
	e.Line, e.Last = slices.Delete(e.Line, 0, i+1), h.Token
	held := rule.Hold{Request: p.Request, Session: p.Session, Token: h.Token, Since: since, Expires: p.Deadline}
	if p.MinHold > 0 {
		held.KeepUntil = since + p.MinHold
	}
	e.Holds = []rule.Hold{held}
}

// repeat notifies the holders again. An earlier release may have been done without an answer, so that
// nobody has notified them.
func (r *record) repeat() {
	for _, h := range r.entry.Holds {
		if !h.Kept {
			r.grants = append(r.grants, rule.Grant{Session: h.Session, ID: h.ID, Token: h.Token})
		}
	}
}

// isOf reports whether the request belongs to a session of that Server.
func (r *record) isOf(id, server string) bool {
	of := func(session string) bool { return strings.HasPrefix(session, server+".") }
	return slices.ContainsFunc(r.entry.Holds, func(h rule.Hold) bool { return h.ID == id && of(h.Session) }) ||
		slices.ContainsFunc(r.entry.Line, func(p rule.Place) bool { return p.ID == id && of(p.Session) })
}

// mint returns the token of a grant that takes n. All n are larger than the last one and than those
// of deleted rows. If there is no row, all are also later than any that the clock gave out before
// now, in case the row was lost.
func (r *record) mint(last uint64, n int) uint64 {
	if last == 0 {
		return uint64(max(r.floor+1, r.now)) + uint64(n-1)
	}
	return uint64(max(int64(last)+int64(n), r.floor+int64(n), r.now))
}

// prolong keeps refreshed deadlines from moving back. A statement that waited for the row may have
// begun before the one that wrote it, and a clock may have been set back.
func (r *record) prolong() {
	for i := range r.entry.Holds {
		h := &r.entry.Holds[i]
		for j := range r.was.Holds {
			if o := &r.was.Holds[j]; o.ID == h.ID && o.Token == h.Token && o.Session == h.Session && o.Kept == h.Kept {
				h.Expires = max(h.Expires, o.Expires)
			}
		}
	}
	if len(r.entry.Line) > 0 && len(r.was.Line) > 0 {
		until := make(map[string]time.Duration, len(r.was.Line))
		for i := range r.was.Line {
			until[r.was.Line[i].ID] = r.was.Line[i].Deadline
		}
		for i := range r.entry.Line {
			p := &r.entry.Line[i]
			p.Deadline = max(p.Deadline, until[p.ID])
		}
	}
}

// encode makes the columns from the entry.
func (r *record) encode() columns {
	r.prolong()
	e := &r.entry
	c := columns{kind: int(e.Kind), limit: e.Limit, counter: e.Count, token: int64(e.Last), waiting: len(e.Line)}
	if e.Set {
		c.counter = 1
	}
	var line, more []byte
	if len(e.Holds) == 1 && e.Holds[0].Mode == driver.Exclusive {
		h := &e.Holds[0]
		c.hid, c.hsession, c.info = h.ID, h.Session, escape(h.Info)
		c.since, c.expires, c.keep = micros(h.Since), micros(h.Expires), micros(h.KeepUntil)
		if h.Kept {
			c.kept = 1
		}
	} else {
		for i := range e.Holds {
			more = appendHold(more, &e.Holds[i])
		}
	}
	for _, a := range e.Await {
		more = fmt.Appendf(more, "A %s %s\n", a.ID, a.Session)
	}
	for i := range e.Line {
		line = appendPlace(line, &e.Line[i])
	}
	c.due = firstDue(e.Line)
	c.line, c.more = string(line), string(more)
	return c
}

// firstDue returns when the first place expires; 0: the queue is empty.
func firstDue(line []rule.Place) (due int64) {
	for i := range line {
		if d := micros(line[i].Deadline); due == 0 || d < due {
			due = d
		}
	}
	return due
}

// busy returns when both an exclusive grant and its minimum hold have ended.
func (c *columns) busy() int64 { return max(c.expires, c.keep) }

// A queue item: id, session, mode, number, minimum hold, since, deadline, info. The number is N, or
// how many tokens the request takes if it is exclusive, since its N is always 1. The dialects'
// statements rely on this order.

func appendPlace(b []byte, p *rule.Place) []byte {
	number := p.N
	if p.Mode == driver.Exclusive {
		number = p.Block()
	}
	return fmt.Appendf(b, "%s %s %d %d %d %d %d %s\n", p.ID, p.Session, p.Mode, number, micros(p.MinHold), micros(p.Since),
		micros(p.Deadline), escape(p.Info))
}

func parsePlace(line string) (p rule.Place, err error) {
	f, err := fields(line, 8)
	if err != nil {
		return p, err
	}
	n, err := numbers(f[2:7])
	if err != nil {
		return p, err
	}
	p.ID, p.Session, p.Wait = f[0], f[1], true
	p.Mode, p.N, p.MinHold, p.Since, p.Deadline = driver.Mode(n[0]), int(n[1]), ofMicros(n[2]), ofMicros(n[3]), ofMicros(
		n[4])
	if p.Info, err = Unescape(f[7]); err != nil {
		return p, err
	}
	if err = sensible(p.Mode, p.N); p.Mode == driver.Exclusive {
		p.N, p.Tokens = 1, p.N
	}
	return p, err
}

// sensible refuses values that no request can have.
func sensible(m driver.Mode, n int) error {
	if m < driver.Exclusive || m > driver.Permits || n < 1 || m == driver.Exclusive && n > driver.MaxTokens {
		return fmt.Errorf("%d of mode %d", n, m)
	}
	return nil
}

func appendHold(b []byte, h *rule.Hold) []byte {
	kept := 0
	if h.Kept {
		kept = 1
	}
	return fmt.Appendf(b, "H %s %s %d %d %d %d %d %d %d %s\n", h.ID, h.Session, h.Mode, h.N, h.Token,
		micros(h.Since), micros(h.Expires), micros(h.KeepUntil), kept, escape(h.Info))
}

func (r *record) parseMore(line string) error {
	if strings.HasPrefix(line, "A ") {
		f, err := fields(line, 3)
		if err == nil {
			r.entry.Await = append(r.entry.Await, rule.Interest{ID: f[1], Session: f[2]})
		}
		return err
	}
	f, err := fields(line, 11)
	if err != nil || f[0] != "H" {
		return fmt.Errorf("neither a grant nor an interest: %q", line)
	}
	n, err := numbers(f[3:10])
	if err != nil {
		return err
	}
	info, err := Unescape(f[10])
	if err != nil {
		return err
	}
	r.entry.Holds = append(r.entry.Holds, rule.Hold{
		Request: driver.Request{ID: f[1], Name: r.name, Mode: driver.Mode(n[0]), N: int(n[1]), Info: info},
		Session: f[2], Token: uint64(n[2]), Since: ofMicros(n[3]), Expires: ofMicros(n[4]), KeepUntil: ofMicros(n[5]),
		Kept: n[6] != 0,
	})
	if n[2] < 0 {
		return fmt.Errorf("token %d", n[2])
	}
	return sensible(driver.Mode(n[0]), int(n[1]))
}

func fields(line string, n int) ([]string, error) {
	text, ok := strings.CutSuffix(line, "\n")
	f := strings.Split(text, " ")
	if !ok || len(f) != n {
		return nil, fmt.Errorf("%d fields: %q; want %d", len(f), line, n)
	}
	return f, nil
}

func numbers(f []string) ([]int64, error) {
	n := make([]int64, len(f))
	for i, s := range f {
		var err error
		if n[i], err = strconv.ParseInt(s, 10, 64); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// escape writes s in printable ASCII without spaces, as a field of an item.
func escape(s string) string {
	const digits = "0123456789abcdef"
	plain := func(c byte) bool { return c > ' ' && c < 0x7f && c != '%' }
	if !slices.ContainsFunc([]byte(s), func(c byte) bool { return !plain(c) }) {
		return s
	}
	b := make([]byte, 0, len(s)+16)
	for i := range len(s) {
		if plain(s[i]) {
			b = append(b, s[i])
		} else {
			b = append(b, '%', digits[s[i]>>4], digits[s[i]&15])
		}
	}
	return string(b)
}

// Unescape returns the text of an item's field, such as Take.Info.
func Unescape(s string) (string, error) {
	if !strings.Contains(s, "%") {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+3 > len(s) {
			return "", fmt.Errorf("%q ends in an incomplete escape", s)
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", err
		}
		b = append(b, byte(c))
		i += 2
	}
	return string(b), nil
}
