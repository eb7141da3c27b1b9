package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/signs"
)

// unusuallyLong is the default of --long.
const unusuallyLong = time.Hour

// renewedText returns the last renewal for a table.
func renewedText(h *holdfast.Holder) string {
	ago, known := signs.Renewed(h)
	if !known {
		return "-"
	}
	return rough(ago) + " ago"
}

// oldest returns how long the waiter waits that has waited longest.
func oldest(r *holdfast.Record) time.Duration {
	var most time.Duration
	for i := range r.Waiters {
		most = max(most, time.Since(r.Waiters[i].Since))
	}
	return most
}

// suspicious says why a name needs somebody who looks; "": it does not.
func suspicious(r *holdfast.Record, long time.Duration) string {
	if r.Damaged != "" {
		return "damaged: nobody can take it until its record is removed at the store"
	}
	for i := range r.Holders {
		if h := &r.Holders[i]; signs.Late(h) {
			return noRenewal(h) + ": stopped, dead or cut off"
		}
	}
	for i := range r.Waiters {
		if w := &r.Waiters[i]; signs.Late(w) {
			return fmt.Sprintf("waiter %d, %s, %s: stopped, dead or cut off", i+1, who(w), noRenewal(w))
		}
	}
	for i := range r.Partial { // one that is still being made is young
		switch h := &r.Partial[i]; {
		case h.Kept:
			return fmt.Sprintf("too few servers of the quorum are free: some keep it for %s", who(h))
		case signs.Late(h):
			return fmt.Sprintf("too few servers of the quorum are free: the grant of %s %s", who(h), noRenewal(h))
		}
	}
	if h := eldest(r); h != nil && r.Waiting > 0 && time.Since(h.Since) > long {
		return fmt.Sprintf("held for over %s, and %d wait", span(long), r.Waiting)
	}
	if r.Waiting > 0 && oldest(r) > long {
		return "somebody has waited for over " + span(long)
	}
	return ""
}

// eldest returns the holder that has held longest, if any is more than kept.
func eldest(r *holdfast.Record) *holdfast.Holder {
	i := slices.IndexFunc(r.Holders, func(h holdfast.Holder) bool { return !h.Kept })
	if i < 0 {
		return nil
	}
	return &r.Holders[i] // they are in the order of their tokens
}

// noRenewal says for how long h has not renewed.
func noRenewal(h *holdfast.Holder) string { return signs.NotRenewed(h, rough, span) }

// silent names a holder that has missed a renewal. One of the HTTP API is a program whose process the
// store does not know.
func silent(h *holdfast.Holder) string {
	if s := h.Labels[signs.LabelSession]; s != "" {
		return fmt.Sprintf("A program (session %s of the HTTP API at %s)", word(s), who(h))
	}
	return who(h)
}

// why says in whole sentences who or what is in the way of a name, and what to do about it.
func why(r *holdfast.Record, long time.Duration) []string {
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	remove := func(h *holdfast.Holder) string {
		return fmt.Sprintf("holdfast break %s --token %d", typed(r.Name), h.Token)
	}
	held := eldest(r)
	switch {
	case r.Kind == "":
		return nil
	case r.Kind == "latch" && r.Count > 0:
		say("The latch opens after %d more of \"holdfast latch down\".", r.Count)
	case r.Kind == "latch":
		say("The latch is open: nobody waits at it.")
	case held == nil && len(r.Holders) > 0:
		h := &r.Holders[0]
		say("Nobody holds it. It stays taken for another %s, until %s, for the minimum hold (--every, --min-hold) of %s.",
			rough(h.Left), time.Now().Add(h.Left).UTC().Format(time.RFC3339), who(h))
		say("To free it now: %s", remove(h))
	case held == nil && r.Waiting+len(r.Partial) == 0:
		say("It is free; the semaphore exists because its limit is set.")
	case held == nil:
		say("%s", signs.Unheld(r, who, rough))
	case foreign(held):
		say("Another program holds it, which does not say who it is or whether it still runs.")
	case signs.Late(held):
		say("%s, which holds it, has %s: it is stopped, dead or cut off from the store.", silent(held), noRenewal(held))
		if held.Left > 0 {
			say("If it stays silent, the store frees the name in %s. Sooner: %s", rough(held.Left), remove(held))
		} else {
			say("Its lease is over: the next request takes the name.")
		}
	default:
		say("%s has held it %s.", who(held), renews(held))
		if held.Sticky > 0 {
			say("It may be idle: its process keeps it for up to %s after each release (Sticky). A request that waits calls it back; one that does not (-n) is refused.",
				span(held.Sticky))
		}
		if held.Tokens > 1 {
			say("It may use %d tokens: %d, which holdfast break wants, is the largest.", held.Tokens, held.Token)
		}
		if d := time.Since(held.Since); d > long {
			say("That is unusually long (--long %s): its work goes on, or hangs. Look at process %d on %s.",
				span(long), held.PID, show(held.Host))
			say("To ask it to release: holdfast revoke %s", typed(r.Name))
			say("To end it: stop that process, or: %s", remove(held))
		}
	}
	if r.Kind == "semaphore" {
		if text := signs.Permits(r, r.Limit-used(r)); text != "" {
			say("%s", text)
		}
	}
	for i := range r.Waiters {
		if w := &r.Waiters[i]; signs.Late(w) {
			say("Waiter %d, %s, has %s: it is stopped, dead or cut off. It loses its place in %s.", i+1, who(w), noRenewal(w),
				rough(w.Left))
			break
		}
	}
	return said
}

// recentActs is how long info shows that somebody broke a lock.
const recentActs = 24 * time.Hour

// acts says what operators have done about a name: who has asked a holder of now to release it, and
// who broke a grant last. It is a help, so an error is no message.
func (s *session) acts(ctx context.Context, r *holdfast.Record) (said []string) {
	ctx, cancel := context.WithTimeout(ctx, waitLook)
	defer cancel()
	entries, err := s.History(ctx, r.Name)
	if err != nil {
		return nil
	}
	broken := ""
	for i := range entries {
		e := &entries[i]
		ago := time.Since(e.At)
		switch {
		case e.Event == holdfast.HistoryAsked && slices.ContainsFunc(r.Holders, func(h holdfast.Holder) bool {
			return h.Token == e.Token && !h.Kept
		}):
			said = append(said, fmt.Sprintf("%s has asked the holder of token %d to release it, %s ago%s.", who(&e.By), e.Token,
				rough(ago), becauseOf(e.Reason)))
		case e.Event == holdfast.HistoryBroken && ago < recentActs:
			broken = fmt.Sprintf("%s broke the grant with token %d, %s ago%s.", who(&e.By), e.Token, rough(ago),
				becauseOf(e.Reason))
		}
	}
	if broken != "" {
		said = append(said, broken)
	}
	return said
}

// becauseOf returns an operator's reason for the end of a sentence.
func becauseOf(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + quote(reason)
}

// renews says how a holder's client is, as far as the record tells.
func renews(h *holdfast.Holder) string {
	ago, known := signs.Renewed(h)
	if !known {
		return "since " + h.Since.UTC().Format(time.RFC3339) + "; when it renewed last is not known"
	}
	return fmt.Sprintf("for %s and renewed its lease %s ago: it was alive then", rough(time.Since(h.Since)), rough(ago))
}

// besideText says what other programs keep under the same name.
func besideText(list []string) string {
	text := fmt.Sprintf("The server has %s, which is not of holdfast. The lock of a program that uses it and this lock do not exclude each other: all programs have to use one of the two.",
		printable(strings.Join(list, " and ")))
	if slices.ContainsFunc(list, func(key string) bool { return strings.Contains(key, " (hash") }) {
		text += " If it is a lock of Java's Redisson, holdfast shares it with dialect=redisson in the URL: see docs/redisson.md."
	}
	return text
}

// typed returns a name as a user would type it; NAME stands for one with characters that cannot be
// seen, which must not reach the terminal.
func typed(name string) string {
	if strings.ContainsFunc(name, hidden) {
		return "NAME"
	}
	return shellWord(name)
}
