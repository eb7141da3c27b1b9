package redislock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// newborn is a member's answer when its server may not vote, or when that has not been checked.
const newborn = "holdfast: newborn"

// A gate is the Conn of a member. If a script finds no valid birth record, the gate checks whether
// the server may vote. Every answer contains the server's clock. The answer is valid only if the
// clock is plausible.
type gate struct {
	Conn
	births   *Script   // records a birth
	timeless []*Script // grant nothing, and answer without the clock
	prefix   string
	watch    Watch // may be nil
}

// A Watch checks the clock of a member's server. Its methods may be called concurrently.
type Watch interface {
	// Answered is called with each answer: when the request was sent, and the server's clock in the
	// answer. If it returns an error, the error replaces the answer.
	Answered(sent time.Time, clock time.Duration) error

	// Pushed reports whether a push, sent when the server's clock was at clock, is valid.
	Pushed(clock time.Duration) bool

	// Looked is called when the server's record was read by a request sent at sent.
	Looked(sent time.Time, b Birth)
}

// Run implements Conn.Run.
func (g *gate) Run(ctx context.Context, s *Script, keys, args []string) (Value, error) {
	sent := time.Now()
	v, err := g.Conn.Run(ctx, s, keys, args)
	if err != nil || v.Text != newborn {
		return g.answered(s, sent, v, err)
	}
	return g.admitted(ctx, s, keys, args)
}

// answered cuts the clock off an answer of s.
func (g *gate) answered(s *Script, sent time.Time, v Value, err error) (Value, error) {
	switch {
	case err != nil || slices.Contains(g.timeless, s):
		return v, err
	case v.Kind != List || len(v.List) == 0 || v.List[0].Int <= 0:
		return v, strange(v)
	case g.watch != nil:
		if err := g.watch.Answered(sent, micros(v.List[0].Int)); err != nil {
			return Value{}, err
		}
	}
	if len(v.List) < 2 {
		return Value{}, nil
	}
	return v.List[1], nil
}

// admitted runs s if the server may vote now.
func (g *gate) admitted(ctx context.Context, s *Script, keys, args []string) (Value, error) {
	b, err := g.birth(ctx)
	if err != nil {
		return Value{}, err
	}
	if b.Left > 0 {
		return Value{}, &Newborn{b.Left}
	}
	sent := time.Now()
	v, err := g.Conn.Run(ctx, s, keys, args)
	if err == nil && v.Text == newborn { // it has restarted, or lost its data, just now
		return Value{}, &Newborn{time.Millisecond}
	}
	return g.answered(s, sent, v, err)
}

// RunAll implements Conn.RunAll.
func (g *gate) RunAll(ctx context.Context, calls []Call) []Result {
	sent := time.Now()
	results := g.Conn.RunAll(ctx, calls)
	for i, r := range results {
		if r.Err == nil && r.Value.Text == newborn {
			results[i].Value, results[i].Err = g.admitted(ctx, calls[i].Script, calls[i].Keys, calls[i].Args)
		} else {
			results[i].Value, results[i].Err = g.answered(calls[i].Script, sent, r.Value, r.Err)
		}
	}
	return results
}

// RunWait refuses: a quorum does not use replicas.
func (g *gate) RunWait(_ context.Context, calls []Call, _ int, _ time.Duration) ([]Result, int, error) {
	err := fmt.Errorf("%w: a member of a quorum does not wait for replicas", driver.ErrInvalid)
	results := make([]Result, len(calls))
	for i := range results {
		results[i].Err = err
	}
	return results, 0, err
}

// birth records the server's birth if it is not recorded, or does what args says.
func (g *gate) birth(ctx context.Context, args ...string) (Birth, error) {
	sent := time.Now()
	v, err := g.Conn.Run(ctx, g.births, nil, args)
	if err != nil {
		return Birth{}, err
	}
	if v.Kind != List || len(v.List) != 9 {
		return Birth{}, strange(v)
	}
	b := Birth{
		Clock: micros(v.List[2].Int), Left: micros(v.List[1].Int), Run: v.List[4].Text, Born: micros(v.List[5].Int),
		Era: v.List[6].Text, Skew: time.Duration(v.List[7].Int) * time.Microsecond, Noted: micros(v.List[8].Int),
	}
	switch v.List[0].Int {
	case 0, 1:
		if g.watch != nil {
			g.watch.Looked(sent, b)
		}
		return b, nil
	case -1:
		return b, fmt.Errorf("%w: the quarantine on record is %v: all clients of a quorum must use the same",
			driver.ErrRefused, micros(v.List[3].Int))
	case -4:
		return b,
			fmt.Errorf("%w: the quorum on record has other servers, or other names for them: all clients must use the same names, "+
				"and localhost is not 127.0.0.1; docs/quorum.md says how to change them",
				driver.ErrRefused)
	case -3:
		return b, fmt.Errorf("%w: a quorum uses database 0 of its servers; use a separate prefix instead", driver.ErrRefused)
	case -2:
		return b, fmt.Errorf("%w: a member of a quorum must be Redis 7 or later", driver.ErrRefused)
	case -5:
		return b, fmt.Errorf("%w: the server is a replica of another, and has no vote", driver.ErrUnavailable)
	}
	return b, strange(v)
}

// Newborn is the error of a member whose server started, lost its data or had its clock set less
// than the quarantine ago. It wraps ErrUnavailable.
type Newborn struct {
	Left time.Duration // what is left of the quarantine
}

// Error says how long the quarantine lasts.
func (e *Newborn) Error() string {
	return fmt.Sprintf("%v: the server has started or lost its data, or its clock was set, and has no vote for another %v",
		driver.ErrUnavailable, e.Left.Round(time.Millisecond))
}

// Unwrap returns driver.ErrUnavailable.
func (e *Newborn) Unwrap() error { return driver.ErrUnavailable }
