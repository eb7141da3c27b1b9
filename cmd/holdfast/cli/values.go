package cli

import (
	"errors"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// seconds is a duration that a user may give as a plain number of seconds, as for flock.
type seconds struct {
	d   time.Duration
	set bool
}

func (s *seconds) String() string {
	if s == nil || !s.set {
		return ""
	}
	return s.d.String()
}

func (s *seconds) Type() string { return "SECONDS" }

func (s *seconds) Set(text string) error {
	d, err := parseTime(text)
	switch {
	case err != nil:
		return err
	case d < 0:
		return errors.New("it must not be negative; 0 does not wait at all")
	}
	s.d, s.set = d, true
	return nil
}

// duration is the value of a flag for a time, as parseTime reads it.
type duration struct{ d *time.Duration }

// durationVar defines a flag for a time.
func durationVar(f *pflag.FlagSet, to *time.Duration, name string, value time.Duration, usage string) {
	*to = value
	f.Var(duration{to}, name, usage)
}

// ttlVar defines a flag for a TTL.
func ttlVar(f *pflag.FlagSet, to *time.Duration, value time.Duration) {
	*to = value
	f.Var(ttlFlag{duration{to}}, "ttl", ttlUsage)
}

// String returns "0" for zero: the flag library then shows no default.
func (d duration) String() string {
	if d.d == nil || *d.d == 0 {
		return "0"
	}
	return span(*d.d)
}

func (duration) Type() string { return "duration" }

func (d duration) Set(text string) (err error) {
	*d.d, err = parseTime(text)
	return err
}

// parseTime reads a time: 10 and 0.5 are seconds, and units are as in 1m30s, 24h and 7d12h.
func parseTime(text string) (time.Duration, error) {
	if strings.Trim(text, "+-.0123456789") == "" {
		text += "s"
	}
	if before, after, ok := strings.Cut(text, "d"); ok {
		days, err := strconv.ParseFloat(before, 64)
		if err != nil {
			return 0, errTime
		}
		text = strconv.FormatFloat(24*days, 'f', -1, 64) + "h" + after
	}
	d, err := time.ParseDuration(text)
	switch {
	case err == nil:
		return d, nil
	case oneNumber.MatchString(text): // no other fault is possible
		return 0, errTooLong
	}
	return 0, errTime
}

var oneNumber = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]*)?(s|m|h)$`)

var errTooLong = errors.New("too long: at most 106751d")

// ttlFlag is the value of --ttl. checkTTL refuses one that is too long, also for a Duration: it names the limit.
type ttlFlag struct{ duration }

func (f ttlFlag) Set(text string) error {
	err := f.duration.Set(text)
	if errors.Is(err, errTooLong) {
		*f.d, err = math.MaxInt64, nil
		if strings.HasPrefix(text, "-") {
			*f.d = math.MinInt64
		}
	}
	return err
}

var errTime = errors.New("expected a time, such as 10 for seconds, or 1m30s, 0.5h, 7d")

// labels collects KEY=VALUE.
type labels map[string]string

func (l *labels) String() string { return strings.Join(l.GetSlice(), ",") }

// GetSlice returns each label as Set reads it.
func (l *labels) GetSlice() (list []string) {
	for _, k := range slices.Sorted(maps.Keys(*l)) {
		list = append(list, k+"="+(*l)[k])
	}
	return list
}

func (l *labels) Type() string { return "KEY=VALUE" }

func (l *labels) Set(text string) error {
	k, v, ok := strings.Cut(text, "=")
	if !ok || k == "" {
		return errors.New("expected KEY=VALUE, for example ticket=OPS-12")
	}
	if *l == nil {
		*l = labels{}
	}
	(*l)[k] = v
	return nil
}
