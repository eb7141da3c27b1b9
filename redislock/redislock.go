package redislock

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/rule"
)

// Config configures a Backend. The zero value, or nil, works.
type Config struct {
	// Prefix begins every key and channel; empty means "hf:". Clients exclude each other only if
	// they use the same prefix and the same database. Braces are not allowed.
	Prefix string

	// WaitReplicas, if positive, is how many replicas must confirm a grant before it counts. The
	// same holds for everything else that a holder relies on. Without their confirmation in time,
	// the grant is taken back and Acquire fails with ErrUnavailable; a lease is given up before it
	// expires. If fewer replicas are reachable, no lock is granted or kept. A promoted replica is
	// certain to know every lease only if WaitReplicas is the number of all replicas: see
	// docs/guarantees.md. The Redis user needs the permission +wait.
	WaitReplicas int

	// WaitTimeout bounds the wait for replicas, at most a third of the TTL. Zero means half a
	// second, or a quarter of the TTL if that is shorter.
	WaitTimeout time.Duration
}

// Backend is a lock table in Redis. New makes one. Its methods may be called concurrently.
type Backend struct {
	conn    *exchanger
	scan    *scan // with a Format
	cluster bool  // see Conn.Cluster
	prefix  string
	scripts *scripts
	take    *combiner
	drop    *combiner
	member  *membership          // of a quorum's server; else nil
	format  *Format              // of another library, whose keys are kept too; else nil
	err     error                // of the Config
	now     func() time.Duration // this process's monotonic clock
	early   bool                 // in a Cluster, for tests: subscribe before the first Acquire that may wait

	waitReplicas int
	waitTimeout  time.Duration   // 0: from the TTL
	life         context.Context // ends with Close; for exchanges whose caller has left
	end          context.CancelFunc
}

var _ driver.Backend = (*Backend)(nil)

// New returns the lock table that conn leads to. It sends nothing. If cfg is invalid, every method
// returns ErrInvalid. The Backend owns conn: Close closes it.
func New(conn Conn, cfg *Config) *Backend {
	return newBackend(conn, cfg, nil, nil)
}

func newBackend(conn Conn, cfg *Config, m *membership, f *Format) *Backend {
	if cfg == nil {
		cfg = new(Config)
	}
	start := time.Now()
	b := &Backend{
		conn: &exchanger{Conn: conn}, cluster: conn.Cluster(), prefix: cfg.Prefix, member: m, format: f,
		scripts: scriptsFor(conn.Cluster(), m, f),
		now:     func() time.Duration { return time.Since(start) },
	}
	if f != nil {
		b.scan = newScan(f)
	}
	b.waitReplicas, b.waitTimeout, b.err = cfg.WaitReplicas, cfg.WaitTimeout, checkReplicas(cfg)
	b.life, b.end = context.WithCancel(context.Background())
	b.take = &combiner{conn: b.conn, script: b.scripts.take, single: b.cluster}
	b.drop = &combiner{conn: b.conn, script: b.scripts.drop, single: b.cluster}
	if b.waitReplicas > 0 {
		b.take.sure = b
	}
	if b.prefix == "" {
		b.prefix = "hf:"
	}
	if strings.ContainsAny(b.prefix, "{}") {
		b.err = fmt.Errorf("%w prefix %q: braces are not allowed", driver.ErrInvalid, b.prefix)
	}
	return b
}

// Name returns "redis", or the name of the Format.
func (b *Backend) Name() string {
	if b.format != nil {
		return b.format.Name
	}
	return "redis"
}

// Kinds returns driver.AllKinds. With a Format each grant takes one token, and calls nobody back.
func (b *Backend) Kinds() driver.Kinds {
	all := driver.AllKinds()
	all.Blocks, all.CallBack = b.format == nil, b.format == nil
	all.Bounded = all.Blocks && b.member == nil
	return all
}

// Close closes the Conn.
func (b *Backend) Close() error {
	b.end()
	return b.conn.Close()
}

// Open starts a session and subscribes to its channel. In a Cluster the session subscribes when it
// first waits in a shard; a session that never waits subscribes to nothing.
func (b *Backend) Open(ctx context.Context, cfg driver.SessionConfig) (driver.Session, error) {
	s, err := b.open(ctx, cfg, Hooks{})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (b *Backend) open(ctx context.Context, cfg driver.SessionConfig, hooks Hooks) (*session, error) {
	if err := cmp.Or(b.err, cfg.Check()); err != nil {
		return nil, err
	}
	patience, err := b.patience(cfg.TTL)
	if err != nil {
		return nil, err
	}
	s := &session{
		b: b, id: cfg.ID, ttl: cfg.TTL.Truncate(time.Microsecond), patience: patience,
		requests: map[string]request{}, streak: map[string]int8{}, hooks: hooks, wanted: cfg.Wanted,
	}
	if b.format != nil {
		s.announced.start(s)
		s.doubt = cfg.Doubt
	}
	if b.cluster {
		// A missing permission or an unreachable Cluster is reported now.
		if err := b.reached(ctx, cfg.ID); err != nil {
			return nil, err
		}
		s.subscriptions.start(s)
		s.stop = s.closing(s.subscriptions.close)
		return s, nil
	}
	stop, err := b.conn.Subscribe(ctx, b.channel(cfg.ID), s.message, s.again)
	if err != nil {
		return nil, err
	}
	s.stop = s.closing(stop)
	return s, nil
}

// closing adds to stop what ends the other subscriptions. The session is open.
func (s *session) closing(stop func()) func() {
	if s.b.format == nil {
		return stop
	}
	s.startListening()
	return func() {
		s.announced.close()
		stop()
	}
}

// channel is the channel of a session.
func (b *Backend) channel(session string) string { return b.prefix + "s:" + session }

// run runs a script with the keys and arguments in c, and frees c.
func (b *Backend) run(ctx context.Context, s *Script, c *call) (Value, error) {
	return b.runFor(ctx, s, c, requester{})
}

// runFor is run on behalf of a request.
func (b *Backend) runFor(ctx context.Context, s *Script, c *call, of requester) (Value, error) {
	if b.err != nil {
		return Value{}, b.err
	}
	c.done()
	v, abandoned, err := b.conn.exchange(ctx, s, c, of)
	for p := (pacer{}); !abandoned && unstable(err) && p.wait(ctx); {
		v, abandoned, err = b.conn.exchange(ctx, s, c, of)
	}
	if !abandoned {
		c.free()
	}
	return v, err
}

// verdict turns a script's answer into an error. 0: done; 1: gone; 2: taken; a text: what the name
// is in use as. "Done" is an error too if replicas have to confirm it and did not.
func verdict(v Value, err error) error {
	short, err := lacking(err)
	switch {
	case err != nil:
		return err
	case v.Kind == Text:
		return fmt.Errorf("%w: %s", driver.ErrKind, v.Text)
	case v.Kind != Int:
		return strange(v)
	case v.Int == 1:
		return driver.ErrGone
	case v.Int == 2:
		return driver.ErrTaken
	case v.Int == 4:
		return rule.ErrMinHold
	case short != nil:
		return short
	}
	return nil
}

// strange returns the error for an answer that none of our scripts gives.
func strange(v Value) error {
	return fmt.Errorf("%w: the server's answer makes no sense: %.200s", driver.ErrRefused, fmt.Sprint(v))
}
