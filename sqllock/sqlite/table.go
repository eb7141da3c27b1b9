package sqlite

import (
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
)

// row is a row of lock: one name without its shared grants and its queue.
type row struct {
	name                   string
	kind                   driver.Kind
	limit                  int
	count                  int64 // Latch: remaining count; Semaphore: 1 if the limit was set
	token                  int64 // the last token given out
	seq                    int64 // the last place given out
	holders, used, waiting int   // number of rows of hold, sum of their n, number of rows of place
	due                    int64 // no place expires earlier
	x                      grant // the exclusive grant; id "": none
	head                   place // the first place; seq 0: not read
	floor, ceiling         int64 // bounds for every token
	dirty                  bool
}

// grant is a row of hold, or the exclusive grant in a row of lock.
type grant struct {
	token       int64
	id, session string
	mode        driver.Mode
	n           int // of an exclusive request until it is granted: how many tokens it takes
	since       int64
	expires     int64 // end of the lease, or of the kept time
	keep        int64 // end of the minimum hold
	kept        bool
	info        string
}

func (g *grant) fields() []any {
	return []any{&g.token, &g.id, &g.session, &g.mode, &g.n, &g.since, &g.expires, &g.keep, &g.kept, &g.info}
}

// stored returns what a request stores as n: the number of tokens that it takes if it is exclusive,
// since its N is always 1, and N otherwise.
func stored(req *driver.Request) int {
	if req.Mode == driver.Exclusive {
		return req.Block()
	}
	return req.N
}

func (g *grant) describe(now int64) driver.Holder {
	return driver.Holder{
		ID: g.id, Mode: g.mode, N: g.n, Token: uint64(g.token), Age: time.Duration(now - g.since),
		Left: time.Duration(max(0, g.expires-now)), Kept: g.kept, Info: g.info,
	}
}

func (r *row) inUse() bool {
	return r.x.id != "" || r.holders > 0 || r.waiting > 0 || r.kind == driver.Latch || r.set()
}

// set reports whether an operator has set the limit of the semaphore, so that it stays.
func (r *row) set() bool { return r.kind == driver.Semaphore && r.count > 0 }

func (r *row) fits(mode driver.Mode, n int) bool {
	holders, used, exclusive := r.holders, r.used, r.x.id != ""
	if exclusive {
		holders, used = holders+1, used+1
	}
	return rule.Fits(mode, n, r.limit, holders, used, exclusive)
}

// readRow reads a row of lock. A name without a row is unused.
func readRow(c *conn, name string) (*row, error) {
	r := &row{name: name}
	r.x.mode, r.x.n = driver.Exclusive, 1
	dest := append([]any{&r.floor, &r.ceiling, &r.kind, &r.limit, &r.count, &r.token, &r.seq, &r.holders, &r.used,
		&r.waiting,
		&r.due, &r.x.id, &r.x.session, &r.x.since, &r.x.expires, &r.x.keep, &r.x.kept, &r.x.info}, r.head.fields()...)
	ok, err := c.get(qRow, []any{[]byte(name)}, dest...)
	if err == nil && !ok {
		err = fmt.Errorf("%w: the table meta is empty", driver.ErrRefused)
	}
	r.x.token = r.token // an exclusive grant is alone, so it has the last token
	if err == nil {
		err = r.check()
	}
	return r, err
}

// row returns the row of name after expiries, as every method needs it.
func (t *tx) row(name string) (*row, error) {
	if r := t.rows[name]; r != nil {
		return r, nil
	}
	r, err := t.unmoved(name)
	if err != nil {
		return nil, err
	}
	return r, t.advance(r)
}

// unmoved returns the row before expiries. No other method of the transaction may have read it.
func (t *tx) unmoved(name string) (*row, error) {
	r, err := readRow(t.c, name)
	if err != nil {
		return nil, err
	}
	t.rows[name] = r
	t.order = append(t.order, r)
	return r, nil
}

func (t *tx) putRow(r *row) error {
	if r.x.id == "" {
		r.x.since = t.now // without a grant: time of the last use
	}
	_, err := t.c.exec(qPutRow, []byte(r.name), int(r.kind), r.limit, r.count, r.token, r.seq, r.holders, r.used,
		r.waiting, r.due, r.x.id, r.x.session, r.x.since, r.x.expires, r.x.keep, r.x.kept, r.x.info)
	return err
}

func (r *row) clear() {
	r.x = grant{mode: driver.Exclusive, n: 1}
	r.dirty = true
}

// advance removes expired leases and places, and hands free locks over in queue order until a
// request does not fit. Its cost depends on what expired and what it hands over, not on the number
// of holders and waiters.
func (t *tx) advance(r *row) error {
	if r.x.id != "" && r.x.expires <= t.now {
		if r.x.keep <= t.now {
			r.clear()
		} else {
			r.x.expires, r.x.kept, r.x.session, r.dirty = r.x.keep, true, "", true
		}
	}
	if r.holders > 0 {
		if err := t.dropHolds(r); err != nil {
			return err
		}
	}
	if r.waiting > 0 && r.due <= t.now {
		if err := t.dropPlaces(r); err != nil {
			return err
		}
	}
	for r.waiting > 0 && r.x.id == "" { // nothing fits next to an exclusive grant
		done, err := t.promote(r)
		if err != nil {
			return err
		}
		if done {
			break
		}
	}
	if !r.inUse() && r.kind != driver.Unused {
		r.kind, r.limit, r.count, r.dirty = driver.Unused, 0, 0, true
	}
	return nil
}

// dropPlaces reads the whole queue. That happens about once a TTL, since renewals do not move
// r.due.
func (t *tx) dropPlaces(r *row) error {
	name := []byte(r.name)
	n, err := t.c.exec(qDropPlacesDue, name, t.now)
	if err != nil {
		return err
	}
	r.waiting, r.head, r.dirty = r.waiting-int(n), place{}, true
	_, err = t.c.get(qNextPlaceDue, []any{name}, &r.due)
	return err
}

func (t *tx) dropHolds(r *row) error {
	var due, drop, n int
	name := []byte(r.name)
	if _, err := t.c.get(qHoldsDue, []any{t.now, t.now, name, t.now}, &due, &drop, &n); err != nil {
		return err
	}
	if drop > 0 {
		if _, err := t.c.exec(qDropHoldsDue, name, t.now, t.now); err != nil {
			return err
		}
		r.holders, r.used, r.dirty = r.holders-drop, r.used-n, true
	}
	if due > drop {
		if _, err := t.c.exec(qKeepHoldsDue, name, t.now); err != nil {
			return err
		}
	}
	return nil
}

// place is the first place in a queue.
type place struct {
	grant        // as it would be granted; expires is the place's deadline
	seq, minhold int64
	at           address // of its session; empty if the session is gone
}

func (p *place) fields() []any {
	return []any{&p.seq, &p.id, &p.session, &p.mode, &p.n, &p.expires, &p.minhold, &p.info, &p.at.bell, &p.at.file,
		&p.at.inode}
}

// readHead returns the first place in the queue; nil: the queue is empty.
func readHead(c *conn, r *row) (*place, error) {
	if r.head.seq == 0 {
		if ok, err := c.get(qHead, []any{[]byte(r.name)}, r.head.fields()...); !ok {
			return nil, err
		}
		if err := r.head.check(); err != nil {
			return nil, err
		}
	}
	return &r.head, nil
}

// wake notifies the waiter at p of token, after the commit.
func (t *tx) wake(p *place, token int64) {
	at := p.at
	t.notifications = append(t.notifications, notification{session: p.session, id: p.id, token: uint64(token), to: &at})
}

// promote grants the first place's request if it fits. done means that it does not.
func (t *tx) promote(r *row) (done bool, err error) {
	p, err := readHead(t.c, r)
	if err != nil {
		return false, err
	}
	if p == nil { // should not happen; the rows of place are the truth
		r.waiting, r.dirty = 0, true
		return true, nil
	}
	if !r.fits(p.mode, p.n) {
		return true, nil
	}
	if _, err := t.c.exec(qDropPlace, []byte(r.name), p.seq); err != nil {
		return false, err
	}
	r.waiting--
	// The lease ends at the place's deadline, which counts from the waiter's last renewal. So both
	// sides agree, and a dead waiter delays others no longer.
	g := p.grant
	g.since, g.keep = t.now, t.now+p.minhold
	if err := t.grant(r, &g); err != nil {
		return false, err
	}
	t.wake(p, g.token)
	r.head = place{}
	return false, nil
}

// grant gives g the next token, or the next block of tokens, and records it. g must fit.
func (t *tx) grant(r *row, g *grant) error {
	block := int64(1)
	if g.mode == driver.Exclusive {
		block, g.n = int64(g.n), 1
	}
	token := max(r.token+block, r.floor+block, t.us)
	if r.token == 0 { // an earlier row of the name may be lost, whose tokens came from the clock
		token = max(r.floor+1, t.us) + block - 1
	}
	if token >= r.ceiling {
		return errCeiling
	}
	g.token, r.token, r.dirty = token, token, true
	if g.mode == driver.Exclusive {
		r.x = *g
		return nil
	}
	r.holders, r.used = r.holders+1, r.used+g.n
	return t.addHold(r, g)
}

func (t *tx) addHold(r *row, g *grant) error {
	_, err := t.c.exec(qAddHold, []byte(r.name), g.token, g.id, g.session, int(g.mode), g.n,
		g.since, g.expires, g.keep, g.kept, g.info)
	return err
}

func (t *tx) dropGrant(r *row, g *grant) error {
	r.dirty = true
	if g.mode == driver.Exclusive {
		r.clear()
		return nil
	}
	r.holders, r.used = r.holders-1, r.used-g.n
	_, err := t.c.exec(qDropHold, []byte(r.name), g.token)
	return err
}

// find returns the request's grant; nil: it has none.
func (t *tx) find(r *row, id string) (*grant, error) {
	if r.x.id == id {
		g := r.x
		return &g, nil
	}
	if r.holders == 0 {
		return nil, nil
	}
	return t.hold(qHoldByID, id, []byte(r.name))
}

func (t *tx) hold(q query, args ...any) (*grant, error) {
	var g grant
	ok, err := t.c.get(q, args, g.fields()...)
	if !ok {
		return nil, err
	}
	return &g, g.check()
}

// placeOf returns the request's place in the queue; 0: none.
func (t *tx) placeOf(r *row, id string) (seq int64, err error) {
	if r.waiting > 0 {
		_, err = t.c.get(qPlaceByID, []any{id, []byte(r.name)}, &seq)
	}
	return seq, err
}

// own returns the grant that its holder names, or the error if it has ended.
func (t *tx) own(r *row, id string, token uint64) (*grant, error) {
	g, err := t.find(r, id)
	if err != nil {
		return nil, err
	}
	if g != nil && uint64(g.token) == token && !g.kept {
		return g, nil
	}
	if uint64(r.token) > token {
		live := r.x.id != "" && !r.x.kept
		if !live && r.holders > 0 {
			var one int
			if live, err = t.c.get(qLive, []any{[]byte(r.name)}, &one); err != nil {
				return nil, err
			}
		}
		if live {
			return nil, driver.ErrTaken
		}
	}
	return nil, driver.ErrGone
}

// retry returns the time until the first lease or kept time ends.
func retry(c *conn, r *row, now int64) (time.Duration, error) {
	due := r.x.expires
	switch {
	case r.x.id != "":
	case r.holders > 0:
		if _, err := c.get(qNextDue, []any{[]byte(r.name)}, &due); err != nil {
			return 0, err
		}
	default:
		return 0, nil
	}
	return pollAtLeast(time.Duration(max(1, due-now))), nil
}
