package doctor

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at returns a reading, taken at begin+after, of a clock that is so far ahead. The request took
// took, and the server answered at its very end.
func at(begin time.Time, after, took, ahead time.Duration) Look {
	answered := begin.Add(after)
	return Look{answered.Add(-took), answered, time.Duration(answered.UnixMicro())*time.Microsecond + ahead}
}

func TestClock(t *testing.T) {
	begin := time.Now()
	const ms, s = time.Millisecond, time.Second
	for name, c := range map[string]struct {
		first, second Look
		want          driver.Severity
		may           bool
	}{
		"good":                {at(begin, 0, ms, 0), at(begin, 500*ms, ms, 0), driver.Fine, false},
		"off by little":       {at(begin, 0, ms, s), at(begin, 500*ms, ms, s), driver.Fine, false},
		"slow answers":        {at(begin, 0, 5*s, 0), at(begin, 20*s, 9*s, 0), driver.Fine, false},
		"slow, and who knows": {at(begin, 0, 5*s, -3*s), at(begin, 20*s, 9*s, -3*s), driver.Fine, false},
		"behind":              {at(begin, 0, ms, -2*s), at(begin, 500*ms, ms, -2*s), driver.Unclear, true},
		"ahead":               {at(begin, 0, ms, 2*s), at(begin, 500*ms, ms, 2*s), driver.Slows, false},
		"stepped back":        {at(begin, 0, ms, 0), at(begin, 500*ms, ms, -2*s), driver.Endangers, false},
		"stepped forward":     {at(begin, 0, ms, 0), at(begin, 500*ms, ms, 200*ms), driver.Endangers, false},
		"stands still":        {at(begin, 0, ms, 0), at(begin, 500*ms, ms, -500*ms), driver.Endangers, false},
		"runs a little fast":  {at(begin, 0, ms, 0), at(begin, 500*ms, ms, 25*ms), driver.Fine, false},
	} {
		var f Findings
		f.Server = "h:1"
		f.Clock("x.clock", c.first, c.second, 15*s)
		if len(f.List) != 1 || f.List[0].Severity != c.want || f.List[0].MayEndanger != c.may || f.List[0].Server != "h:1" {
			t.Errorf("%s: %+v, want %v", name, f.List, c.want)
		}
	}
}

func TestHeadroomAndLatency(t *testing.T) {
	for _, c := range []struct {
		used, limit int64
		want        driver.Severity
	}{{1, 100, driver.Fine}, {90, 100, driver.Fine}, {91, 100, driver.Slows}, {1, 9, driver.Slows},
		{10_000, 10_000, driver.Slows}, {8_000, 10_000, driver.Fine}, {12, 10, driver.Slows}} {
		var f Findings
		f.Headroom("x.connections", "limit", c.used, c.limit)
		if f.List[0].Severity != c.want {
			t.Errorf("%d of %d: %+v, want %v", c.used, c.limit, f.List[0], c.want)
		}
	}
	var f Findings
	f.Latency("x.latency", 50*time.Millisecond, 10, time.Second)
	f.Latency("x.latency", 51*time.Millisecond, 10, time.Second)
	if f.List[0].Severity != driver.Fine || f.List[1].Severity != driver.Slows {
		t.Errorf("%+v", f.List)
	}
	failed := errors.New("failed")
	asked := 0
	if _, err := Slowest(t.Context(), 5, func(context.Context) error { asked++; return failed }); !errors.Is(err,
		failed) || asked != 1 {
		t.Errorf("%v after %d", err, asked)
	}
}

// Await ends with its context.
func TestAwait(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	Look{After: time.Now().Add(time.Hour)}.Await(over)
	Look{After: time.Now().Add(-time.Hour)}.Await(t.Context())
}
