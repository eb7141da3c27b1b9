package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// Limits and defaults.
const (
	MinServers = 3
	MaxServers = 9

	DefaultPrefix     = "hfq:"
	DefaultQuarantine = time.Minute
)

// A Server is one of the independent servers of a quorum.
type Server struct {
	// Name says which it is, such as its host and port: to people, in errors, and to other
	// clients, which must call it the same. No credentials.
	Name string

	// Dial connects to it. It is called when the server is first needed, and again after it
	// has failed; it must not take longer than some seconds. The quorum closes the Conn. The
	// Conn must be as rueidisconn.Dial makes it: it must not repeat requests by itself.
	Dial func() (redislock.Conn, error)
}

// Config is optional: the zero value, or nil, works. All clients of a quorum must agree on it.
type Config struct {
	// Prefix begins every key and channel; DefaultPrefix if empty. It must differ from that of
	// locks which the same servers keep each for itself. Allowed are letters, digits and . : _ -
	Prefix string

	// Quarantine is how long a server stays out after it has started or was emptied. It is also
	// the longest TTL that clients may use, and more than the clocks of the servers may
	// differ by. From 100 ms to 24 h; DefaultQuarantine if zero. The servers have it on record.
	Quarantine time.Duration
}

// Backend is a lock table on a quorum of servers. Use New.
type Backend struct {
	servers    []*server
	quarantine time.Duration
	err        error // of what New was given
	clocks     *clocks

	mu     sync.Mutex
	runs   map[int]string // of each server that has been reached
	closed bool
	bg     sync.WaitGroup // what goes on when its caller has gone
}

var _ driver.Backend = (*Backend)(nil)

// New returns the lock table that is kept by a majority of servers: 3 to 9 of them, the same
// for all clients. It connects to none yet. What makes no sense is reported by every method.
func New(servers []Server, cfg *Config) *Backend {
	if cfg == nil {
		cfg = &Config{}
	}
	b := &Backend{quarantine: cfg.Quarantine, runs: map[int]string{}}
	prefix := cfg.Prefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if b.quarantine == 0 {
		b.quarantine = DefaultQuarantine
	}
	// Contenders come to terms by the order of the servers, so it is the same for all.
	servers = slices.SortedFunc(slices.Values(servers), func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	names, set := map[string]bool{}, ""
	for _, s := range servers {
		set += s.Name + "\n" // whoever has others has another majority
	}
	for _, s := range servers {
		if s.Dial == nil || s.Name == "" || names[s.Name] {
			b.err = fmt.Errorf("%w quorum: each server needs a way to it, and a name of its own", driver.ErrInvalid)
		}
		names[s.Name] = true
		b.servers = append(b.servers, &server{Server: s, prefix: prefix, quarantine: b.quarantine, set: set})
	}
	b.clocks = newClocks(b)
	for i, s := range b.servers {
		s.watch = watch{b.clocks, i}
	}
	if n := len(servers); n < MinServers || n > MaxServers {
		b.err = fmt.Errorf("%w quorum of %d servers: allowed are %d to %d, best an odd number", driver.ErrInvalid, n, MinServers, MaxServers)
	}
	// What is wrong with these, every connection would report.
	if err := redislock.CheckMember(prefix, b.quarantine); err != nil {
		b.err = err
	}
	return b
}

// Name is "redis-quorum".
func (b *Backend) Name() string { return "redis-quorum" }

// Close closes the connections.
func (b *Backend) Close() error {
	defer b.bg.Wait()
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.clocks.close()
	errs := make([]error, len(b.servers))
	var all sync.WaitGroup
	for i, s := range b.servers {
		all.Go(func() { errs[i] = s.close() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// background runs f beside its caller, and reports false if b is closed. A Conn may take longer than the context that it
// is given, so nobody waits for f but Close.
func (b *Backend) background(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.bg.Go(f)
	return true
}

func (b *Backend) need() int { return len(b.servers)/2 + 1 }

// twins is the error of a server that is another of the quorum, too. One that had two of the votes would take
// what one of them gives away for still held by the other.
type twins struct{ a, b string }

func (e *twins) Error() string {
	return fmt.Sprintf("%v: %s and %s are one server: each of a quorum must be a server of its own", driver.ErrRefused, e.a, e.b)
}

func (e *twins) Unwrap() error { return driver.ErrRefused }

// meets notes which run of a server was found under the name of server i.
func (b *Backend) meets(i int, run string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for j, other := range b.runs {
		if j != i && other == run {
			return &twins{b.servers[min(i, j)].Name, b.servers[max(i, j)].Name}
		}
	}
	b.runs[i] = run
	return nil
}

// Declare says that the deployment is new: no server of it has ever granted anything. They take
// part at once then, instead of after the quarantine. It must reach every server.
//
// Errors: ErrRefused if one of them takes part already, that is if the deployment is not new and
// another has restarted: that one comes back by itself, in its time. Nothing is done if all
// take part. ErrUnavailable, ErrUncertain: not all were reached; it may be repeated before the first
// use, and whichever was not reached comes in after its quarantine.
func (b *Backend) Declare(ctx context.Context) error {
	if b.err != nil {
		return b.err
	}
	births := make([]redislock.Birth, len(b.servers))
	errs := make([]error, len(b.servers))
	ask := func(declare bool) error {
		var all sync.WaitGroup
		for i, s := range b.servers {
			all.Go(func() {
				err := fmt.Errorf("%w: %s: not asked", driver.ErrUnavailable, s.Name)
				// A connection that broke since it was last used is noticed now.
				for range 3 {
					var m *redislock.Member
					if m, err = s.get(ctx); err == nil {
						births[i], err = m.Birth(ctx, declare)
					}
					if err == nil {
						err = b.meets(i, births[i].Run)
					}
					if !errors.Is(err, driver.ErrUncertain) && !errors.Is(err, driver.ErrUnavailable) || !sleep(ctx, redial) {
						break
					}
				}
				if errs[i] = err; err != nil {
					errs[i] = fmt.Errorf("%s: %w", s.Name, err)
				}
			})
		}
		all.Wait()
		return errors.Join(errs...)
	}
	if err := ask(false); err != nil {
		return err
	}
	var out []string
	for i, s := range b.servers {
		if births[i].Left > 0 {
			out = append(out, s.Name)
		}
	}
	switch len(out) {
	case 0:
		return nil
	case len(b.servers):
		err := ask(true)
		b.clocks.decide(ctx)
		return err
	}
	return fmt.Errorf("%w: this quorum is not new: only %s stays out, since it has restarted or lost its data; it comes back by itself, %v after that",
		driver.ErrRefused, strings.Join(out, ", "), b.quarantine)
}

// verdict is the error when so many servers failed that there is no majority.
func (b *Backend) verdict(errs []error) error {
	var kept []error
	young, refused, damaged, closed, uncertain := 0, 0, 0, 0, false
	for _, err := range errs {
		var newborn *redislock.Newborn
		switch {
		case err == nil:
			continue
		case errors.As(err, &newborn):
			young++
		case errors.Is(err, driver.ErrRefused):
			refused++
		case errors.Is(err, driver.ErrDamaged):
			damaged++
		case errors.Is(err, driver.ErrClosed):
			closed++
		case errors.Is(err, driver.ErrUncertain):
			uncertain = true
		}
		kept = append(kept, err)
	}
	what, most := driver.ErrUnavailable, len(b.servers)-b.need()
	switch {
	case closed > 0:
		return driver.ErrClosed
	case damaged > most || damaged > 0 && !uncertain && len(kept) > most && len(kept)-damaged <= most: // the others would do
		what = driver.ErrDamaged
	case refused+damaged > most:
		what = driver.ErrRefused
	case uncertain:
		what = driver.ErrUncertain
	}
	hint := ""
	if young > most {
		hint = " (if this is a new deployment, that nobody has used yet, declare it so: holdfast init, or quorum.Backend.Declare)"
	}
	return &failure{what, fmt.Sprintf("%d of %d servers failed%s", len(kept), len(b.servers), hint), kept}
}

// failure is an error of which the quorum, not its servers, says what it means.
type failure struct {
	what  error
	text  string
	parts []error
}

func (e *failure) Error() string {
	parts := make([]string, len(e.parts))
	for i, p := range e.parts {
		parts[i] = p.Error()
	}
	slices.Sort(parts)
	return fmt.Sprintf("%v: %s: %s", e.what, e.text, strings.Join(slices.Compact(parts), "; "))
}

// Unwrap returns what the failure means. The causes are in the text only: what one server's
// error means is not what the quorum's does.
func (e *failure) Unwrap() error { return e.what }
