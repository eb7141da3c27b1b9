package quorum

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"
)

// ruling is what follows for one server from a comparison of the clocks.
type ruling struct {
	sound bool // what it says counts, once it is on record
	note  bool // it has to be put on record
	era   string
	skew  time.Duration
	set   bool // its clock was set
}

// stale is how old the record of a clock becomes while somebody uses the server.
const stale = time.Minute

// judge compares the clocks of the servers that have been seen with what they have on record. It depends on
// nothing else. It reports false if it is not clear which are right, and then rules that none is, if
// it must rule now.
//
// The era that most servers have on record is the one that counts; whatever has another, or none, as a server that has
// begun a new life, takes it over. Those of the era that agree on what its time is now are right if
// they are a majority of all servers, or if there are none that do not.
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
	var now time.Duration // by how much the time of the era is ahead of ours
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

// middle is about by how much the clock is ahead of ours.
func (v *view) middle() time.Duration { return v.lo + (v.hi-v.lo)/2 }

// age is how old what is on record is.
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

// agreeing returns the most servers of one era that agree on what its time is.
func agreeing(views []view, members []int, slack time.Duration) (best []int) {
	between := func(i int) (from, to time.Duration) {
		v := &views[i]
		// What is on record was seen no more exactly than this.
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
