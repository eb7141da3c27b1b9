// Package signs tells from a record whether a holder or waiter lives, and what a name waits for. The
// command line and the console share it, so that both judge and say the same.
package signs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// A healthy client renews every third of its lease; half of it without a renewal means that at least
// one has failed.
const lateShare = 2

// LabelSession is the label of a grant that a server of the HTTP API has taken for a program. Each
// sign of life of the program moves the end of such a grant, so its maximum hold is no end.
const LabelSession = "http-session"

// Renewed returns how long ago the last renewal of h was. It is not known for another program's
// grant, for an old client's, where no renewal changes what is left (ZooKeeper), and near the end of
// a maximum hold: there a renewal adds less than a lease.
func Renewed(h *holdfast.Holder) (ago time.Duration, known bool) {
	if h.Lease <= 0 || h.Kept || h.Left >= h.Lease {
		return 0, false
	}
	if h.MaxHold > 0 && h.Labels[LabelSession] == "" {
		switch {
		case h.MaxHold < h.Lease: // no renewal makes it last for a whole lease
			return 0, false
		case h.Token != 0 && toEnd(h) <= h.Left: // the last one may have added less
			return 0, false
		}
	}
	return h.Lease - max(h.Left, 0), true
}

// toEnd returns how long the maximum hold of h still lasts, at least: the client may end it a
// hundredth earlier, and its clock may run a little faster than the store's.
func toEnd(h *holdfast.Holder) time.Duration {
	return h.MaxHold - h.MaxHold/100 - time.Since(h.Since)
}

// Late reports whether h has missed a renewal: its client is stopped, gone, or cut off.
func Late(h *holdfast.Holder) bool {
	ago, known := Renewed(h)
	return known && ago > h.Lease/lateShare
}

// NotRenewed says how long h has not renewed. rough writes a time that was measured, exact one that
// was set.
func NotRenewed(h *holdfast.Holder, rough, exact func(time.Duration) string) string {
	ago, _ := Renewed(h)
	return fmt.Sprintf("not renewed for %s of a lease of %s", rough(ago), exact(h.Lease))
}

// Unheld says why a name without a holder has waiters, or is in use. who describes a request, rough a
// time that was measured.
func Unheld(r *holdfast.Record, who func(*holdfast.Holder) string, rough func(time.Duration) string) string {
	if len(r.Partial) == 0 {
		return "Nobody holds it; the first waiter gets it when it asks next."
	}
	text := "Too few servers of the quorum are free, and no majority of them names one holder. " +
		"The other servers have grants of " + Partial(r, who, rough) + ". "
	if slices.ContainsFunc(r.Partial, func(h holdfast.Holder) bool { return !h.Kept }) {
		text += "Such a grant stays behind when its program ends while the server is away. " +
			"It ends by itself; break cannot end it."
	} else {
		text += "They keep the name after a run, and another server that keeps it is away. " +
			"It becomes free by itself; break cannot free it."
	}
	if r.FreeIn > 0 {
		text += " Enough servers are free in " + rough(r.FreeIn) +
			". This takes longer if a grant is renewed, or if servers are needed that are away."
	}
	return text
}

// Partial names the requests that have too few servers of a quorum to hold a name, and says for how long.
func Partial(r *holdfast.Record, who func(*holdfast.Holder) string, rough func(time.Duration) string) string {
	const most = 3
	var all []string
	for i := range r.Partial {
		if i == most {
			all = append(all, "others")
			break
		}
		h := &r.Partial[i]
		kept := ""
		if h.Kept {
			kept = " (a minimum hold)"
		}
		all = append(all, fmt.Sprintf("%s for another %s%s", who(h), rough(h.Left), kept))
	}
	return strings.Join(all, ", ")
}

// Permits says why requests wait for a semaphore that has permits left, or that never has enough; ""
// if that is not why. free is how many permits nobody has.
func Permits(r *holdfast.Record, free int) string {
	if len(r.Waiters) == 0 {
		return ""
	}
	switch first := r.Waiters[0].Permits; {
	case first > r.Limit:
		return fmt.Sprintf("The first waiter wants %d permits, and the limit is %d: it waits for ever. "+
			"Raise the limit (holdfast sem limit), or end that waiter.", first, r.Limit)
	case free > 0:
		return fmt.Sprintf("%d permits are free, and the first waiter wants %d; those behind it wait for their turn.",
			free, first)
	}
	return ""
}
