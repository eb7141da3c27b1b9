package quorum

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"
)

// ruling is the result of a comparison of the clocks for one server.
type ruling struct {
	sound bool // its answers count, once the ruling is recorded
	note  bool // it must be recorded
	era   string
	skew  time.Duration
	set   bool // its clock was set
}

// stale is the greatest age of a clock record while the server is in use.
const stale = time.Minute

// judge compares the clocks that have been seen with the servers' records. It depends on nothing
// else. It returns false if it is unclear which clocks are right. If it must decide then, it rules
// that none is.
//
// The era that most servers have on record counts. A server with another era, or without one after
// a loss of its data, adopts it. Servers of the era that agree on its time now are right if they
// are a majority of all servers, or if all of them agree.
func judge(views []view, need int, slack time.Duration, must bool) (rulings []ruling, clear bool) {
	rulings = make([]ruling, len(views))
	var seen []int
	for i := range views {
		if views[i].at != 0 {
			seen = append(seen, i)
		}
	}
	if len(seen) < need {
		return rulings, true
	}
	era := eraOf(views, seen)
	var members []int
	for _, i := range seen {
		if era != "" && views[i].birth.Era == era {
			members = append(members, i)
		}
	}
	agree := agreeing(views, members, slack)
	clear = len(agree) >= need || len(agree) == len(members)
	if !clear && !must {
		return rulings, false
	}
	var now time.Duration // how far the time of the era is ahead of ours
	if clear && len(agree) > 0 {
		now = median(agree, func(i int) time.Duration { return views[i].middle() - views[i].birth.Skew })
	} else {
		era, agree = newEra(), nil
		now = median(seen, func(i int) time.Duration { return views[i].middle() })
	}
	for _, i := range seen {
		v := &views[i]
		r := ruling{sound: true, note: true, era: era, skew: (v.middle() - now).Truncate(time.Microsecond)}
		switch {
		case slices.Contains(agree, i):
			off := v.birth.Skew + now
			right := off >= v.lo-slack/4 && off <= v.hi+slack/4
			r.note = !right || v.age() > stale
			if right {
				r.skew = v.birth.Skew
			}
		case slices.Contains(members, i):
			r.set = true
		}
		rulings[i] = r
	}
	return rulings, clear
}

// middle estimates how far the clock is ahead of ours.
func (v *view) middle() time.Duration { return v.lo + (v.hi-v.lo)/2 }

// age returns the age of the record.
func (v *view) age() time.Duration { return (v.birth.Clock - v.birth.Noted).Abs() }

// eraOf returns the era that most of the servers have on record; "" if none has one.
func eraOf(views []view, seen []int) string {
	count := map[string]int{}
	for _, i := range seen {
		if e := views[i].birth.Era; e != "" {
			count[e]++
		}
	}
	best := ""
	for e, n := range count {
		if n > count[best] || n == count[best] && e > best {
			best = e
		}
	}
	return best
}

// agreeing returns the largest group of servers of one era that agree on its time now.
func agreeing(views []view, members []int, slack time.Duration) (best []int) {
	between := func(i int) (from, to time.Duration) {
		v := &views[i]
		// The record is no more exact than this.
		wide := slack + (v.hi-v.lo)/2 + v.age()/longDrift
		return v.lo - v.birth.Skew - wide, v.hi - v.birth.Skew + wide
	}
	for _, i := range members {
		at, _ := between(i)
		var agree []int
		for _, j := range members {
			if from, to := between(j); from <= at && at <= to {
				agree = append(agree, j)
			}
		}
		if len(agree) > len(best) {
			best = agree
		}
	}
	return best
}

func median(of []int, value func(int) time.Duration) time.Duration {
	of = slices.SortedFunc(slices.Values(of), func(i, j int) int { return cmp.Compare(value(i), value(j)) })
	return value(of[len(of)/2])
}

func newEra() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
