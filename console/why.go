package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/signs"
)

// why says in a few sentences who has a name, and what others wait for. bad: an operator may have to
// act.
func (s *snapshot) why(r *holdfast.Record) (text string, bad bool) {
	waiting := func() string {
		if r.Waiting == 0 {
			return "Nobody waits."
		}
		return plural(r.Waiting, "request") + " wait" + map[bool]string{true: "s"}[r.Waiting == 1] + "."
	}
	switch {
	case r.Kind == "":
		return "Nobody uses this name.", false
	case r.Kind == "latch":
		return fmt.Sprintf("The latch opens after %d more counts. %s", r.Count, waiting()), false
	case r.Kind == "semaphore" && signs.Permits(r, r.Limit-used(r)) != "":
		return signs.Permits(r, r.Limit-used(r)), r.Waiters[0].Permits > r.Limit
	case r.Kind == "semaphore" && used(r) < r.Limit:
		return fmt.Sprintf("%d of %d permits are free. Nobody waits.", r.Limit-used(r), r.Limit), false
	case len(r.Holders) == 0 && r.Waiting+len(r.Partial) > 0:
		return signs.Unheld(r, who, short), false
	case len(r.Holders) == 0:
		return "Nobody has it.", false
	case r.Holders[0].Kept:
		return fmt.Sprintf("It was released, and its minimum hold keeps it for another %s. %s", short(r.Holders[0].Left),
			waiting()), false
	}
	if k := s.knotOf(r); k != nil {
		return "Deadlock. " + strings.Join(k.sentences(), " ") + " None of them goes on until one lets go. " +
			k.advice(), true
	}
	var parts []string
	const most = 5
	for i := range r.Holders {
		if len(parts) == most {
			parts = append(parts, "There may be more.")
			break
		}
		h := &r.Holders[i]
		switch {
		case signs.Late(h):
			parts = append(parts, fmt.Sprintf("%s has %s. If it does not return, the store frees its grant in %s.", who(h),
				signs.NotRenewed(h, short, short), short(h.Left)))
			bad = r.Waiting > 0
		case s.leaseOf(h).Level == "over":
			parts = append(parts, fmt.Sprintf("The lease of %s is over, and the store is about to free its grant.", who(h)))
		}
	}
	if len(parts) > 0 {
		return strings.Join(parts, " ") + " " + waiting(), bad
	}
	first := &r.Holders[0]
	if p := s.graph.parties[keyOf(first)]; p != nil && len(p.waits) > 0 && p.waits[0].name != r.Name && r.Waiting > 0 {
		return fmt.Sprintf("%s has it, and waits for %s itself. %s", who(first), shown(p.waits[0].name), waiting()), false
	}
	if foreign(first) {
		return "Another program, which does not use holdfast, has it. " + waiting(), false
	}
	some := fmt.Sprintf("%s has had it for %s, and its lease has another %s.", who(first), short(time.Since(first.Since)),
		short(first.Left))
	if n := len(r.Holders); n > 1 {
		some = fmt.Sprintf("%d have it. The first, %s, has had it for %s.", n, who(first), short(time.Since(first.Since)))
	}
	return some + " " + waiting(), false
}

// knotOf returns the deadlock in which a name is, or nil. The record may be newer than the reading: a
// deadlock counts only if its grant and its waiter are still there.
func (s *snapshot) knotOf(r *holdfast.Record) *knot {
	for _, k := range s.graph.knots {
		for _, l := range k.links {
			if l.wish.name == r.Name && lists(r.Waiters, l.wish.h) && (l.grip == nil || lists(r.Holders, l.grip.h)) {
				return k
			}
		}
	}
	return nil
}

func lists(list []holdfast.Holder, h *holdfast.Holder) bool {
	return slices.ContainsFunc(list, func(x holdfast.Holder) bool { return x.ID == h.ID && x.Token == h.Token && !x.Kept })
}
