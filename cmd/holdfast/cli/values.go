package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
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
	d, err := time.ParseDuration(text)
	const most = 1e9 // seconds, less than the largest time.Duration
	n, nerr := strconv.ParseFloat(text, 64)
	if nerr == nil && n >= 0 && n < most {
		d, err = time.Duration(n*float64(time.Second)), nil
	}
	switch {
	case nerr == nil && n < 0, err == nil && d < 0:
		return errors.New("it must not be negative; 0 does not wait at all")
	case nerr == nil && n >= most:
		return fmt.Errorf("it must be less than %.0f seconds; leave it out to wait without a limit", most)
	case err != nil:
		return errors.New("expected seconds, such as 10 or 0.5, or a time with its unit, such as 1m30s")
	}
	s.d, s.set = d, true
	return nil
}

// labels collects KEY=VALUE.
type labels map[string]string

func (l *labels) String() string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(*l)) {
		list = append(list, k+"="+(*l)[k])
	}
	return strings.Join(list, ",")
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
