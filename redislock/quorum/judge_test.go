package quorum

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/redislock"
)

// seenAs is a server whose clock is ahead of ours by that much, with an era and a skew on record.
func seenAs(ahead time.Duration, era string, skew time.Duration) view {
	return view{lo: ahead - time.Millisecond, hi: ahead + time.Millisecond, at: 1,
		birth: redislock.Birth{Clock: time.Hour, Noted: time.Hour, Era: era, Skew: skew}}
}

// TestJudge: which clocks are right, and the ruling for the others.
func TestJudge(t *testing.T) {
	const slack = 20 * time.Millisecond
	for name, c := range map[string]struct {
		views []view
		must  bool
		want  string // as of letters
		clear bool
	}{
		"all as on record": {views: []view{seenAs(5*time.Second, "e", 0), seenAs(6*time.Second, "e", time.Second),
			seenAs(4*time.Second, "e", -time.Second)}, want: "sss", clear: true},
		"one was set": {views: []view{seenAs(0, "e", 0), seenAs(time.Minute, "e", 0), seenAs(0, "e", 0)}, want: "sxs",
			clear: true},
		"one was set back": {views: []view{seenAs(0, "e", 0), seenAs(-time.Minute, "e", 0), seenAs(0, "e", 0)}, want: "sxs",
			clear: true},
		"two of five": {views: []view{seenAs(0, "e", 0), seenAs(time.Minute, "e", 0), seenAs(0, "e", 0),
			seenAs(time.Minute, "e", 0), seenAs(0, "e", 0)},
			want: "sxsxs", clear: true},
		"one more than a minority can be seen, and one was set": {views: []view{{}, {}, seenAs(0, "e", 0),
			seenAs(time.Minute, "e", 0), seenAs(0, "e", 0)}, want: "-----"},
		"and it must be decided": {views: []view{{}, {}, seenAs(0, "e", 0),
			seenAs(time.Minute, "e", 0), seenAs(0, "e", 0)}, must: true, want: "--xxx"},
		"no majority was seen": {views: []view{seenAs(0, "e", 0), {}, {}}, want: "---",
			clear: true},
		"nothing is on record": {views: []view{seenAs(0, "", 0), seenAs(time.Minute, "", 0),
			seenAs(0, "", 0)}, want: "nnn", clear: true},
		"one began a new life": {views: []view{seenAs(0, "e", 0), seenAs(time.Minute, "", 0),
			seenAs(0, "e", 0)}, want: "sns", clear: true},
		"another era": {views: []view{seenAs(0, "e", 0),
			seenAs(time.Minute, "f", time.Hour), seenAs(0, "e", 0)}, want: "sns", clear: true},
		"one era as good as the other": {views: []view{seenAs(0, "e", 0),
			seenAs(time.Minute, "f", time.Hour), {}}, want: "ns-", clear: true},
		"we were suspended": {views: []view{seenAs(time.Hour, "e", 0),
			seenAs(time.Hour, "e", 0), seenAs(time.Hour, "e", 0)}, want: "sss", clear: true},
		"drifted": {views: []view{seenAs(0, "e", 0),
			seenAs(15*time.Millisecond, "e", 0), seenAs(0, "e", 0)}, want: "sns", clear: true},
		"drifted for a day": {views: []view{old(seenAs(0, "e", 0)),
			old(seenAs(4*time.Second, "e", 0)), old(seenAs(-4*time.Second, "e", 0))}, want: "nnn", clear: true},
	} {
		t.Run(name, func(t *testing.T) {
			rulings, clear := judge(c.views, len(c.views)/2+1, slack, c.must)
			if clear != c.clear {
				t.Errorf("clear: %v", clear)
			}
			got := letters(rulings)
			for i, r := range rulings {
				if r.sound && !r.note && (r.era != c.views[i].birth.Era || r.skew != c.views[i].birth.Skew) {
					t.Errorf("%d: %+v is not what is on record", i, r)
				}
			}
			if got != c.want {
				t.Errorf("%s, not %s: %+v", got, c.want, rulings)
			}
		})
	}
}

// TestJudgedAfterAnOutage: two of three servers disagree, and the third may show which of them is right. After an
// outage there is time for that again.
func TestJudgedAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClocks(&Backend{quarantine: time.Second, servers: []*server{{}, {}, {}}})
		defer c.close()
		at := func() {
			for i, ahead := range []time.Duration{time.Hour, 0} {
				c.views[i] = seenAs(ahead, "e", 0)
				c.views[i].at = time.Since(c.start)
			}
		}
		disagree := func(want string) {
			t.Helper()
			began := time.Since(c.start)
			at()
			_, rulings := c.judged(began)
			if got := letters(rulings); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		nobody := func() { _, _ = c.judged(time.Since(c.start) + 1) }
		time.Sleep(time.Second)
		disagree("---")
		time.Sleep(askLimit / 2)
		disagree("---")
		nobody()
		time.Sleep(time.Hour)
		disagree("---")
		nobody()
		time.Sleep(askLimit)
		disagree("xx-")
		disagree("---") // the ruling may not have been recorded
	})
}

// letters describes the ruling for each server: s sound, n recorded, x its clock was set, - nothing.
func letters(rulings []ruling) (text string) {
	for _, r := range rulings {
		switch {
		case r.set && r.sound && r.note:
			text += "x"
		case r.note && r.sound:
			text += "n"
		case r.sound:
			text += "s"
		default:
			text += "-"
		}
	}
	return text
}

// old is a view of a day-old record.
func old(v view) view {
	v.birth.Noted -= 24 * time.Hour
	return v
}

// TestJudgedAfterSleep: this process was asleep, and its clock stood still. Servers that it has not seen since do not
// agree with the others, but were not set.
func TestJudgedAfterSleep(t *testing.T) {
	const began = time.Second
	now := func(v view) view { v.at = began; return v }
	slept, before := now(seenAs(time.Hour, "e", 0)), seenAs(0, "e", 0)
	for name, test := range map[string]struct {
		views []view
		want  string // as of letters
	}{
		"one is silent":                     {[]view{slept, before, slept}, "s-s"},
		"two are silent":                    {[]view{before, slept, before}, ""},
		"two of five are silent":            {[]view{slept, before, slept, before, slept}, "s-s-s"},
		"awake: one was set, one is silent": {[]view{now(before), slept, before}, "sx-"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &Backend{quarantine: time.Second, servers: make([]*server, len(test.views))}
			c := newClocks(b)
			c.views = test.views
			_, rulings := c.judged(began)
			if got := letters(rulings); got != test.want || c.unclear {
				t.Errorf("%s, %v; want %s", got, c.unclear, test.want)
			}
		})
	}
}

// TestJudgeSettles: whatever the clocks and records are, all servers seen agree once the rulings
// are recorded.
func TestJudgeSettles(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 3 + rng.IntN(7)
		views := make([]view, n)
		for i := range views {
			if rng.IntN(4) == 0 {
				continue
			}
			v := seenAs(time.Duration(rng.Int64N(int64(time.Hour))).Truncate(time.Microsecond),
				[]string{"", "e", "f"}[rng.IntN(3)], 0)
			if rng.IntN(2) == 0 { // it is where it should be
				v.birth.Skew = v.middle()
			}
			views[i] = v
		}
		before := fmt.Sprintf("%+v", views)
		rulings, _ := judge(views, n/2+1, 20*time.Millisecond, true)
		for i, r := range rulings {
			if r.sound {
				views[i].birth.Era, views[i].birth.Skew = r.era, r.skew
			}
		}
		again, clear := judge(views, n/2+1, 20*time.Millisecond, false)
		for i, r := range again {
			if !clear || r.set || r.note || r.sound != rulings[i].sound {
				t.Fatalf("seed %d: %v %+v after %+v, of %s", seed, clear, again, rulings, before)
			}
		}
	}
}

// TestRuledTooLate: a clock was set after the look and before the ruling, and the server was seen
// again. The ruling does not count for it, unless the ruling withholds its vote anyway.
func TestRuledTooLate(t *testing.T) {
	for what, c := range map[string]struct {
		ahead time.Duration // how much more the clock is ahead than when it was judged
		set   bool
		want  trust
	}{
		"as it was":             {0, false, sound},
		"drifted":               {10 * time.Millisecond, false, sound},
		"set meanwhile":         {time.Minute, false, doubted},
		"set back meanwhile":    {-time.Minute, false, doubted},
		"it has no vote anyway": {time.Minute, true, sound},
	} {
		t.Run(what, func(t *testing.T) {
			b := &Backend{quarantine: time.Second, servers: []*server{{}}}
			b.clocks = newClocks(b)
			judged := seenAs(0, "e", 0)
			now := seenAs(c.ahead, "e", 0)
			now.trust = doubted
			b.clocks.views[0] = now
			b.clocks.carryOut(t.Context(), 0, judged, ruling{sound: true, era: "e", set: c.set})
			if got := b.clocks.views[0].trust; got != c.want {
				t.Errorf("%d, not %d", got, c.want)
			}
		})
	}
}

// TestUrgent: a comparison waits for slow servers, unless a majority has answered and is clear, and one of that has no
// vote meanwhile.
func TestUrgent(t *testing.T) {
	for name, test := range map[string]struct {
		trust    [3]trust
		answered []bool
		unclear  bool
		want     bool
	}{
		"one of the majority waits":     {[3]trust{sound, doubted, sound}, []bool{true, true, false}, false, true},
		"a new one waits":               {[3]trust{sound, unseen, sound}, []bool{true, true, false}, false, true},
		"it is unclear":                 {[3]trust{sound, doubted, sound}, []bool{true, true, false}, true, false},
		"only the slow one waits":       {[3]trust{sound, sound, doubted}, []bool{true, true, false}, false, false},
		"too few have answered":         {[3]trust{sound, doubted, sound}, []bool{false, true, false}, false, false},
		"all have votes, one is silent": {[3]trust{sound, sound, sound}, []bool{true, true, false}, false, false},
	} {
		c := newClocks(&Backend{quarantine: time.Second, servers: []*server{{}, {}, {}}})
		c.unclear = test.unclear
		for i, t := range test.trust {
			c.views[i].trust = t
		}
		if got := c.urgent(test.answered); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
