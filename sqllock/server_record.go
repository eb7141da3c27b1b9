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
// An exclusive grant is always alone on its name, so it lives in columns (hid to info), where one
// statement can take, renew, release and hand over. Everything else that can hold a name
// (shared grants, permits, who awaits a latch) is text in more; the line is text in line, an
// item for each place. Statements pass on the line's first item when it asks for the whole
// name; whatever is rarer is decided by package rule, on the row read and written back.
const recordColumns = `name, kind, lim, counter, token, ver, at, hid, hsession, since, expires, keep, kept, info, due, line, more`

// record is one row of hf_lock: the state of one name.
type record struct {
	name   string
	exists bool
	ver    int64
	floor  int64 // tokens are larger than this, whatever the row says
	now    int64 // the server's clock when the statement began that read it
	at     int64 // and that of the last statement that wrote it
	entry  rule.Entry
	grants []rule.Grant // who is to be told once this is written
	cols   columns      // as read
	was    rule.Entry   // its grants and its line, as read

	damaged error // why the row cannot be read; entry is empty then
}

// maxToken is far beyond what any clock makes of a token, and far from what a column can hold.
const maxToken = 1 << 62

// columns are what a row keeps of its rule.Entry.
type columns struct {
	kind, limit                int
	counter, token             int64
	hid, hsession              string
	since, expires, keep, kept int64
	info                       string
	waiting                    int
	due                        int64 // no place of the line runs out before; 0: nobody waits
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

// decode makes the entry from the columns, or says in damaged why it cannot.
func (r *record) decode() {
	if err := r.tryDecode(); err != nil {
		r.damaged = fmt.Errorf("%w: table hf_lock, name %q: %w", driver.ErrDamaged, r.name, err)
		r.entry = rule.Entry{Mint: r.mint, Done: map[string]bool{}}
	}
}

func (r *record) tryDecode() error {
	c, e := &r.cols, &r.entry
	*e = rule.Entry{Kind: driver.Kind(c.kind), Limit: c.limit, Last: uint64(c.token), Count: c.counter, Mint: r.mint, Done: map[string]bool{}}
	switch {
	case c.kind < 0 || e.Kind > driver.Latch:
		return fmt.Errorf("kind is %d", c.kind)
	case c.limit < 0 || c.counter < 0 || c.token < 0:
		return fmt.Errorf("a column is negative: lim %d, counter %d, token %d", c.limit, c.counter, c.token)
	case c.token > maxToken:
		return fmt.Errorf("token %d: no larger one can follow", c.token)
	case c.hid != "" && (e.Kind != driver.Lock || c.more != ""):
		return fmt.Errorf("it has an exclusive holder (hid), yet kind is %d and more has %d bytes", c.kind, len(c.more))
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
	// Statements leave due earlier than any place runs out. As long as it lies ahead, that alone is no
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

// recall puts back the hand-over to h, if a crash of the server has made it forget that, which the
// dialects allow: it knows the place in line yet, with the time for which h's holder may
// believe to hold the lock. Nothing has been granted since, or the last token were larger; and
// who stood before that place had gone when it was its turn. Hand-overs that may be forgotten have
// tokens of the clock; a larger one was made up.
func (r *record) recall(h driver.Hold) {
	e := &r.entry
	i := slices.IndexFunc(e.Line, func(p rule.Place) bool { return p.ID == h.ID })
	if h.Token <= e.Last || h.Token > uint64(max(r.now, 0)) || i < 0 || e.Line[i].Mode != driver.Exclusive || e.Line[i].Deadline <= ofMicros(r.now) {
		return
	}
	p := e.Line[i]
	since := min(ofMicros(int64(h.Token)), ofMicros(r.now)) // tokens are the time, mostly
	e.Line, e.Last = slices.Delete(e.Line, 0, i+1), h.Token
	held := rule.Hold{Request: p.Request, Session: p.Session, Token: h.Token, Since: since, Expires: p.Deadline}
	if p.MinHold > 0 {
		held.KeepUntil = since + p.MinHold
	}
	e.Holds = []rule.Hold{held}
}

// isOf reports whether request id is one of a session of that Server.
func (r *record) isOf(id, server string) bool {
	of := func(session string) bool { return strings.HasPrefix(session, server+".") }
	return slices.ContainsFunc(r.entry.Holds, func(h rule.Hold) bool { return h.ID == id && of(h.Session) }) ||
		slices.ContainsFunc(r.entry.Line, func(p rule.Place) bool { return p.ID == id && of(p.Session) })
}

// mint makes the next token: larger than the last, than those of rows that are gone, and than
// any that was given out before this moment by the clock, should their rows be lost.
func (r *record) mint(last uint64) uint64 {
	return uint64(max(int64(last)+1, r.floor+1, r.now))
}

// prolong keeps what was refreshed from ending sooner than it did: a statement that waited for the
// row may have begun before that which wrote it, and a clock may have been set back.
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

// firstDue is when the first place of a line runs out; 0: nobody waits.
func firstDue(line []rule.Place) (due int64) {
	for i := range line {
		if d := micros(line[i].Deadline); due == 0 || d < due {
			due = d
		}
	}
	return due
}

// busy is when an exclusive grant and its minimum hold are both over.
func (c *columns) busy() int64 { return max(c.expires, c.keep) }

// An item of a line: id, session, mode, number, minimum hold, since, deadline, info; the
// statements of the dialects count on this order.

func appendPlace(b []byte, p *rule.Place) []byte {
	return fmt.Appendf(b, "%s %s %d %d %d %d %d %s\n", p.ID, p.Session, p.Mode, p.N, micros(p.MinHold), micros(p.Since), micros(p.Deadline), escape(p.Info))
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
	p.Mode, p.N, p.MinHold, p.Since, p.Deadline = driver.Mode(n[0]), int(n[1]), ofMicros(n[2]), ofMicros(n[3]), ofMicros(n[4])
	if p.Info, err = Unescape(f[7]); err != nil {
		return p, err
	}
	return p, sensible(p.Mode, p.N)
}

// sensible refuses what no request can have asked for.
func sensible(m driver.Mode, n int) error {
	if m < driver.Exclusive || m > driver.Permits || n < 1 {
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
		Session: f[2], Token: uint64(n[2]), Since: ofMicros(n[3]), Expires: ofMicros(n[4]), KeepUntil: ofMicros(n[5]), Kept: n[6] != 0,
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

// escape writes s in printable ASCII without spaces, so that it is a field of an item.
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

// Unescape is the text of a field of an item: what Take.Info was made of.
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
