package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

func inject(context.Context) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}

// The seed determines the schedule.
func TestScheduleRepeats(t *testing.T) {
	own := []Fault{{Kind: "flush", Inject: inject}}
	text := func(seed uint64) string {
		s := newSchedule(seed, Kinds(), own, 4)
		var b strings.Builder
		for range 50 {
			r := s.next()
			fmt.Fprintln(&b, r.faults, r.gap)
		}
		return b.String()
	}
	first, again := text(7), text(7)
	if first != again {
		t.Error("two schedules with the same seed differ")
	}
	if first == text(8) {
		t.Error("two seeds give the same schedule")
	}
}

// Each kind comes once before any comes again, faults of one round hit different processes, and
// each kind has its lengths.
func TestScheduleRounds(t *testing.T) {
	own := []Fault{{Kind: "flush", Inject: inject}}
	for seed := range uint64(20) {
		s := newSchedule(seed, Kinds(), own, 3)
		var all []planned
		for range 100 {
			r := s.next()
			if len(r.faults) == 2 && r.faults[0].process == r.faults[1].process || len(r.faults) > 2 || r.gap < 0.2 {
				t.Fatalf("%v", r)
			}
			all = append(all, r.faults...)
		}
		size := len(Kinds()) + 1
		for i := 0; i+size <= len(all); i += size {
			var kinds []string
			for _, p := range all[i : i+size] {
				kinds = append(kinds, p.kind)
			}
			slices.Sort(kinds)
			if len(slices.Compact(kinds)) != size {
				t.Fatalf("seed %d: %v", seed, all[i:i+size])
			}
		}
		one := false
		for _, p := range all {
			if p.kind == KindStop && p.length < 1.1 || p.process < 0 || p.process > 2 || (p.kind == "flush") != (p.own == 0) ||
				p.server >= 0 && slices.Contains(local, p.kind) {
				t.Errorf("%+v", p)
			}
			one = one || p.server >= 0
		}
		if !one {
			t.Error("a single server is never hit")
		}
	}
}

func TestCheckKinds(t *testing.T) {
	flush := Fault{Kind: "flush", Inject: inject}
	for _, c := range []struct {
		asked   []string
		remote  bool
		own     []Fault
		want    []string
		errText string
	}{
		{nil, true, nil, Kinds(), ""},
		{nil, false, nil, []string{KindStop, KindKill}, ""},
		{[]string{KindNone}, true, []Fault{flush}, nil, ""},
		{[]string{KindKill, KindCut, KindKill}, true, nil, []string{KindKill, KindCut}, ""},
		{[]string{KindKill, KindNone}, true, nil, nil, "none alone"},
		{[]string{"nonsense"}, true, nil, nil, `"nonsense"`},
		{[]string{KindCut}, false, nil, nil, "not reached over a network"},
		{nil, true, []Fault{{Kind: "stop", Inject: inject}}, nil, "one word"},
		{nil, true, []Fault{{Kind: "a b", Inject: inject}}, nil, "one word"},
		{nil, true, []Fault{{Kind: "x"}}, nil, "one word"},
	} {
		got, err := checkKinds(c.asked, c.remote, c.own)
		if c.errText != "" {
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), c.errText) {
				t.Errorf("%v: %v", c.asked, err)
			}
		} else if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v; want %v", c.asked, got, err, c.want)
		}
	}
}
