package holdfast

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// EventType says in one word what an Event is about.
type EventType string

// The types of events. An event of one type may show other changes too: its fields have all of them.
const (
	EventHeld    EventType = "held"    // there is a new grant: see Event.Granted
	EventEnded   EventType = "ended"   // a grant has ended, and the name is not free: others hold it, or it is kept
	EventFree    EventType = "free"    // nobody holds the name any more; or a latch, or an unused limit, was removed
	EventWaiting EventType = "waiting" // the queue has changed
	EventCount   EventType = "count"   // the count of a latch has changed, or there is a new latch
	EventChanged EventType = "changed" // something else: a limit, a downgrade, a lease that another process adopted
	EventDamaged EventType = "damaged" // the record of the name cannot be read: see Record.Damaged
	EventReady   EventType = "ready"   // all names in use have been reported; the event has no name
)

// Event is a difference between two readings of the record of one name.
type Event struct {
	Type EventType

	// Initial says that the name was in use when Watch began. Granted then has its grants.
	Initial bool

	// Granted are the grants that the reading before did not have, in order of their tokens. The
	// holder of an earlier one may have released it before the reading; the tokens show that.
	Granted []Holder

	// Ended are the grants of the reading before that have ended: released, lost, or broken by an
	// operator. Records do not tell which.
	Ended []Holder

	Record // the state of the name, as read
}

// difference returns the event for what has changed from one reading of a name to the next, and
// whether anything has. before is the last record that could be read; damaged says that there was
// one after it that could not.
func difference(before *Record, damaged bool, now *Record) (e Event, any bool) {
	e = Event{Type: EventChanged, Record: *now}
	if now.Damaged != "" {
		e.Type = EventDamaged
		return e, !damaged
	}
	e.Granted, e.Ended = without(now.Holders, before.Holders), without(before.Holders, now.Holders)
	isLatch, wasLatch := now.Kind == "latch", before.Kind == "latch"
	switch {
	case len(e.Granted) > 0:
		e.Type = EventHeld
	case taken(now) == 0 && taken(before) > 0, wasLatch && !isLatch, before.LimitSet && now.Kind == "":
		e.Type = EventFree
	case len(e.Ended) > 0:
		e.Type = EventEnded
	case isLatch && (!wasLatch || now.Count != before.Count):
		e.Type = EventCount
	case now.Waiting != before.Waiting || !slices.EqualFunc(now.Waiters, before.Waiters, sameHolder):
		e.Type = EventWaiting
	default:
		return e, damaged || now.Kind != before.Kind || now.Limit != before.Limit ||
			now.LimitSet != before.LimitSet ||
			!slices.EqualFunc(now.Holders, before.Holders, sameHolder)
	}
	return e, true
}

// taken counts the grants of a name, also those at too few servers of a quorum.
func taken(r *Record) int { return len(r.Holders) + len(r.Partial) }

// without returns the grants of list that others do not have. A token belongs to one grant. A name
// that is kept is no grant any more.
func without(list, others []Holder) (only []Holder) {
	for _, h := range list {
		if !h.Kept && !slices.ContainsFunc(others, func(o Holder) bool { return !o.Kept && sameGrant(&o, &h) }) {
			only = append(only, h)
		}
	}
	return only
}

// sameGrant reports whether a and b are one grant. The token of another program's grant may not be
// known.
func sameGrant(a, b *Holder) bool { return a.Token == b.Token && (a.Token != 0 || a.ID == b.ID) }

// sameHolder reports whether two readings show the same grant, or the same place in the queue, with
// nothing changed but the times.
func sameHolder(a, b Holder) bool {
	return a.ID == b.ID && a.Token == b.Token && a.Shared == b.Shared && a.Permits == b.Permits && a.Kept == b.Kept
}

// damagedRecord returns the record of a name for which Inspect has returned ErrDamaged.
func damagedRecord(name string, err error) Record {
	return Record{Name: name, Damaged: strings.TrimPrefix(err.Error(), driver.ErrDamaged.Error()+": ")}
}

// reading is what was read about a name.
type reading struct {
	last    Record        // the last record that could be read
	damaged bool          // it cannot be read any more
	expires time.Duration // when the first lease ends unless renewed
}

// ask makes one exchange that reads, and repeats it if the answer is lost soon.
func (w *nameWatch) ask(ctx context.Context, exchange func(context.Context) error) error {
	return w.c.repeatRead(ctx, func() error {
		ctx, cancel := w.c.bound(ctx)
		defer cancel()
		return exchange(ctx)
	})
}

// readAll reads the records of all names in use, and of those that were in use before.
func (w *nameWatch) readAll(ctx context.Context) error {
	const page = 100
	missing := maps.Clone(w.known)
	for after, more := "", true; more; {
		var list []driver.Record
		err := w.ask(ctx, func(ctx context.Context) (err error) {
			list, err = w.c.store.List(ctx, w.prefix, after, page)
			return err
		})
		for i := range list {
			delete(missing, list[i].Name)
			if err == nil {
				err = w.compare(w.c.record(list[i]))
			}
		}
		if err != nil {
			return err
		}
		if more = len(list) == page; more {
			after = list[page-1].Name
		}
	}
	return w.readNames(ctx, slices.Sorted(maps.Keys(missing)))
}

// readNames reads the records of names.
func (w *nameWatch) readNames(ctx context.Context, names []string) error {
	for _, name := range names {
		var read driver.Record
		err := w.ask(ctx, func(ctx context.Context) (err error) {
			read, err = w.c.store.Inspect(ctx, name)
			return err
		})
		r := w.c.record(read)
		if errors.Is(err, ErrDamaged) {
			r, err = damagedRecord(name, err), nil
		}
		if err == nil {
			r.Name = name
			err = w.compare(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compare yields what has changed since the reading before, and remembers the new one.
func (w *nameWatch) compare(now Record) error {
	before := w.known[now.Name]
	initial := !w.ready && before == nil
	if before == nil {
		before = &reading{}
	}
	e, changed := difference(&before.last, before.damaged, &now)
	e.Initial = initial
	r := &reading{last: now, expires: forever}
	switch {
	case now.Damaged != "":
		r.last, r.damaged = before.last, true
		w.known[now.Name] = r
	case now.Kind == "":
		delete(w.known, now.Name)
	default:
		for _, list := range [][]Holder{now.Holders, now.Partial} {
			for i := range list {
				if left := list[i].Left; left > 0 { // else it is not known
					r.expires = min(r.expires, w.c.coarseNow()+left)
				}
			}
		}
		w.known[now.Name] = r
		w.expiryAt = min(w.expiryAt, r.expires)
	}
	if changed && !w.emit(e, nil) {
		return errStop
	}
	return nil
}
