package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/backoff"
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
	// Name identifies the server, for instance by its host and port: in errors, for people, and to
	// other clients, which must use the same name. It must not contain credentials.
	Name string

	// Dial connects to the server. It is called when the server is first needed, and again after a
	// failure. It must return within some seconds, and at once when ctx ends: the quorum is being
	// closed. The quorum closes the Conn. The Conn must not repeat requests by itself;
	// rueidisconn.DialContext makes such a Conn.
	Dial func(ctx context.Context) (redislock.Conn, error)
}

// Config configures a Backend. The zero value, or nil, works. All clients of a quorum must use the
// same.
type Config struct {
	// Prefix begins every key and channel; empty means DefaultPrefix. It must differ from the
	// prefix of locks that a single server keeps. Allowed are letters, digits and . : _ -
	Prefix string

	// Quarantine is how long a server has no vote after it has started or lost its data, counted from
	// the first request of a client after that. It is also the longest TTL that clients may use, and
	// must exceed the differences of the servers' clocks. Allowed are 100 ms to 24 h; zero means
	// DefaultQuarantine. The servers record it.
	Quarantine time.Duration
}

// Backend is a lock table on a quorum of servers. New makes one. Its methods may be called
// concurrently.
type Backend struct {
	servers    []*server
	quarantine time.Duration
	err        error // of the arguments of New
	clocks     *clocks

	used atomic.Bool // a server has had a vote: the quorum is not new

	mu     sync.Mutex
	runs   map[int]string // of each server that was reached
	closed bool
	bg     sync.WaitGroup // work that outlasts its caller
}

var _ driver.Backend = (*Backend)(nil)

// New returns the lock table of a majority of servers: 3 to 9 of them, the same for all clients. It
// does not connect yet. If the arguments are invalid, every method returns ErrInvalid.
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
	// The order of the servers settles split votes, so it is the same for all clients.
	servers = slices.SortedFunc(slices.Values(servers), func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	names, set := map[string]bool{}, ""
	for _, s := range servers {
		set += s.Name + "\n" // a client with other servers would have other majorities
	}
	for _, s := range servers {
		if s.Dial == nil || s.Name == "" || names[s.Name] {
			b.err = fmt.Errorf("%w quorum: each server needs a Dial function and a unique name", driver.ErrInvalid)
		}
		names[s.Name] = true
		one := newServer(s)
		one.prefix, one.quarantine, one.set = prefix, b.quarantine, set
		b.servers = append(b.servers, one)
	}
	b.clocks = newClocks(b)
	for i, s := range b.servers {
		s.watch = watch{b.clocks, i}
	}
	if n := len(servers); n < MinServers || n > MaxServers {
		b.err = fmt.Errorf("%w quorum of %d servers: allowed are %d to %d, best an odd number", driver.ErrInvalid, n,
			MinServers, MaxServers)
	}
	// Every connection would report these errors.
	if err := redislock.CheckMember(prefix, b.quarantine); err != nil {
		b.err = err
	}
	return b
}

// Name returns "redis-quorum".
func (b *Backend) Name() string { return "redis-quorum" }

// Kinds returns mutexes and read/write locks: two majorities have a server in common, but not a
// permit or a count.
func (b *Backend) Kinds() driver.Kinds {
	return driver.Kinds{Shared: true, MinHold: true, Leases: true, Blocks: true}
}

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

// background runs f in the background, or returns false if b is closed. A Conn may take longer than
// the context that it is given, so only Close waits for f.
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

// duplicateServer reports that two names lead to one server, which would then cast two votes.
type duplicateServer struct{ a, b string }

func (e *duplicateServer) Error() string {
	return fmt.Sprintf("%v: %s and %s are one server: a quorum needs different servers", driver.ErrRefused, e.a, e.b)
}

func (e *duplicateServer) Unwrap() error { return driver.ErrRefused }

// meets records which run of a server has the name of server i.
func (b *Backend) meets(i int, run string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for j, other := range b.runs {
		if j != i && other == run {
			return &duplicateServer{b.servers[min(i, j)].Name, b.servers[max(i, j)].Name}
		}
	}
	b.runs[i] = run
	return nil
}

// Declare marks the deployment as new: none of its servers has ever granted anything. The servers
// then vote at once, instead of after the quarantine. It must reach every server.
//
// Errors: ErrRefused if a server votes already. Then the deployment is not new, and another server
// has restarted: its vote returns after the quarantine. If all servers vote, Declare does nothing.
// ErrUnavailable, ErrUncertain: not all servers were reached. Declare may be repeated before the
// first use; a server that was not reached gets its vote after its quarantine.
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
				// A connection that broke since its last use is noticed now.
				for range 3 {
					var m *redislock.Member
					if m, err = s.get(ctx); err == nil {
						births[i], err = m.Birth(ctx, declare)
					}
					if err == nil {
						err = b.meets(i, births[i].Run)
					}
					if !errors.Is(err, driver.ErrUncertain) && !errors.Is(err, driver.ErrUnavailable) || !backoff.Sleep(ctx, redial) {
						break
					}
				}
				errs[i] = ofServer(s.Name, err)
			})
		}
		all.Wait()
		return b.atEach(errs)
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
		b.clocks.decide(ctx, 0)
		return err
	}
	why := "has no vote, because it has restarted or lost its data; its vote returns"
	if len(out) > 1 {
		why = "have no vote, because they have restarted or lost their data; their votes return"
	}
	return fmt.Errorf("%w: this quorum is not new: only %s %s %v after that", driver.ErrRefused, listed(out), why,
		b.quarantine)
}
