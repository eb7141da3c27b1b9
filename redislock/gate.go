package redislock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// newborn is what a script of a member answers when the server may not take part yet, or nobody
// has looked whether it may.
const newborn = "holdfast: newborn"

// stub stands in for a script that the server does not know: a member's script must not be
// loaded by the way, but only when the birth of the server is put on record.
const stub = "return '" + newborn + "'"

// A gate is the Conn of a member. Every script that the server does not know makes it look
// whether the server may take part.
type gate struct {
	Conn
	any    *Script
	prefix string
	stubs  sync.Map // *Script to its stand-in
}

func (g *gate) standIn(s *Script) *Script {
	if twin, ok := g.stubs.Load(s); ok {
		return twin.(*Script)
	}
	twin, _ := g.stubs.LoadOrStore(s, &Script{Text: stub, SHA1: s.SHA1})
	return twin.(*Script)
}

// Run is Conn.Run.
func (g *gate) Run(ctx context.Context, s *Script, keys, args []string) (Value, error) {
	v, err := g.Conn.Run(ctx, g.standIn(s), keys, args)
	if err != nil || v.Text != newborn {
		return v, err
	}
	return g.admitted(ctx, s, keys, args)
}

// admitted runs s if the server may take part by now.
func (g *gate) admitted(ctx context.Context, s *Script, keys, args []string) (Value, error) {
	b, err := g.birth(ctx, s, false)
	if err != nil {
		return Value{}, err
	}
	if b.Left > 0 {
		return Value{}, &Newborn{b.Left}
	}
	v, err := g.Conn.Run(ctx, g.standIn(s), keys, args)
	if err == nil && v.Text == newborn { // it has restarted, or was emptied, just now
		return Value{}, &Newborn{time.Millisecond}
	}
	return v, err
}

// RunAll is Conn.RunAll.
func (g *gate) RunAll(ctx context.Context, calls []Call) []Result {
	twins := make([]Call, len(calls))
	for i, c := range calls {
		twins[i] = Call{g.standIn(c.Script), c.Keys, c.Args}
	}
	results := g.Conn.RunAll(ctx, twins)
	for i, r := range results {
		if r.Err == nil && r.Value.Text == newborn {
			results[i].Value, results[i].Err = g.admitted(ctx, calls[i].Script, calls[i].Keys, calls[i].Args)
		}
	}
	return results
}

// RunWait is Conn.RunWait, which would load scripts by the way: the servers of a quorum have no replicas
// that count.
func (g *gate) RunWait(_ context.Context, calls []Call, _ int, _ time.Duration) ([]Result, int, error) {
	err := fmt.Errorf("%w: a member of a quorum waits for no replicas", driver.ErrInvalid)
	results := make([]Result, len(calls))
	for i := range results {
		results[i].Err = err
	}
	return results, 0, err
}

// birth loads s, which puts the server's birth on record.
func (g *gate) birth(ctx context.Context, s *Script, declare bool) (Birth, error) {
	var args []string
	if declare {
		args = []string{"new"}
	}
	v, err := g.Conn.Run(ctx, s, nil, args)
	if err != nil {
		return Birth{}, err
	}
	if v.Kind != List || len(v.List) != 5 {
		return Birth{}, strange(v)
	}
	b := Birth{micros(v.List[2].Int), micros(v.List[1].Int), v.List[4].Text}
	switch v.List[0].Int {
	case 0, 1:
		return b, nil
	case -1:
		return b, fmt.Errorf("%w: the quarantine on record is %v: all clients of a quorum must use the same", driver.ErrRefused, micros(v.List[3].Int))
	case -4:
		return b, fmt.Errorf("%w: on record are other servers, or they were called otherwise: all clients of a quorum must name the same; "+
			"to change them, stop all clients, remove the record (the key %sb) from all servers, and declare the quorum new", driver.ErrRefused, g.prefix)
	case -3:
		return b, fmt.Errorf("%w: a quorum uses database 0 of its servers; a prefix of its own keeps it apart", driver.ErrRefused)
	case -2:
		return b, fmt.Errorf("%w: a member of a quorum must be Redis 7 or later: earlier ones could remember scripts over a restart", driver.ErrRefused)
	}
	return b, strange(v)
}

// Newborn is the error of a member whose server has started, or was emptied, less than the
// quarantine ago. It is ErrUnavailable.
type Newborn struct {
	Left time.Duration // how long it stays out yet
}

// Error says for how long.
func (e *Newborn) Error() string {
	return fmt.Sprintf("%v: the server has started or lost its data, and stays out for another %v", driver.ErrUnavailable, e.Left.Round(time.Millisecond))
}

// Unwrap returns ErrUnavailable.
func (e *Newborn) Unwrap() error { return driver.ErrUnavailable }
