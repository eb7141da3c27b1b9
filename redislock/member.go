package redislock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A Member is one server of a quorum of independent servers, for package quorum. Its scripts differ
// from those of a Backend in five ways. They do nothing until the server has been up for the
// quarantine. A caller can propose a token, so that all servers give the same one. Answers contain
// the place in the queue. Every answer and push contains the server's clock. More scripts let
// contenders settle a split vote.
type Member struct {
	*Backend
	gate *gate
}

// Hooks are called for what a member's server pushes. The caller holds a mutex: a hook must not
// block, nor call the session.
type Hooks struct {
	// Pushed: the Wake of the request with this ID has a value.
	Pushed func(id string)

	// Claimed: the request named by asks the one with this ID to give way at this server; see
	// MemberSession.Claim.
	Claimed func(id string, rank int, by string)

	counts func(clock time.Duration) bool // see Watch.Pushed
}

// NewMember is New for a member of a quorum. The server grants nothing until it has been up for the
// quarantine. servers identifies the set of servers: a client that names another set is refused.
// watch, if not nil, checks the server's clock. Errors: those of [CheckMember].
func NewMember(conn Conn, prefix string, quarantine time.Duration, servers string, watch Watch) (*Member, error) {
	if err := CheckMember(prefix, quarantine); err != nil {
		return nil, err
	}
	if conn.Cluster() {
		return nil, fmt.Errorf("%w: a member of a quorum must be a single server, not a Cluster", driver.ErrInvalid)
	}
	sum := sha256.Sum256([]byte(servers))
	g := &gate{Conn: conn, prefix: prefix, watch: watch}
	b := newBackend(g, &Config{Prefix: prefix}, &membership{prefix, quarantine, hex.EncodeToString(sum[:4])}, nil)
	g.births, g.timeless = b.scripts.birth, []*Script{b.scripts.drop, b.scripts.missing}
	return &Member{b, g}, nil
}

// CheckMember returns ErrInvalid unless prefix is one or more letters, digits and . : _ - and
// quarantine is an allowed TTL.
func CheckMember(prefix string, quarantine time.Duration) error {
	if prefix == "" || strings.ContainsFunc(prefix, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".:_-", r)
	}) {
		return fmt.Errorf("%w prefix %q: it must not be empty; allowed are letters, digits and . : _ -", driver.ErrInvalid,
			prefix)
	}
	if quarantine < driver.MinTTL || quarantine > driver.MaxTTL {
		return fmt.Errorf("%w quarantine %v: allowed are %v to %v", driver.ErrInvalid, quarantine, driver.MinTTL,
			driver.MaxTTL)
	}
	return nil
}

// Birth is what a member's server knows about itself. The server is born when it starts, loses its
// data or gets its clock set: from then on it must wait for the quarantine.
type Birth struct {
	Clock time.Duration // its clock, since 1970
	Left  time.Duration // what is left of its quarantine; 0: it votes
	Run   string        // identifies this run of this server
	Born  time.Duration // its clock when it was born; identifies this life of the server

	Era   string        // names the common time that Skew refers to: 8 characters, or none
	Skew  time.Duration // how far its clock was ahead of that time
	Noted time.Duration // its clock when that was recorded
}

// Birth returns how long the server's quarantine lasts, and records the server's birth if it has no
// valid record. declare marks the server as new, without a quarantine.
//
// Errors: ErrRefused if the server's record has another quarantine or other servers, if conn leads
// to a database other than 0, or if the server is older than Redis 7; ErrUnavailable if the server
// is a replica; those of Conn.
func (m *Member) Birth(ctx context.Context, declare bool) (Birth, error) {
	if declare {
		return m.gate.birth(ctx, "new")
	}
	return m.gate.birth(ctx)
}

// Note records how far the server's clock is ahead of the time of an era (8 characters), if the
// record still has the birth and era of b. It returns the record that then stands. set means that
// the clock was set: the server forgets all grants and starts a quarantine. Errors: those of Birth.
func (m *Member) Note(ctx context.Context, b Birth, era string, skew time.Duration, set bool) (Birth, error) {
	how := "0"
	if set {
		how = "1"
	}
	return m.gate.birth(ctx, "note", fmt.Sprintf("%016d", b.Born.Microseconds()), b.Era, era,
		fmt.Sprintf("%+016d", skew.Microseconds()), how)
}

// Join opens a session.
func (m *Member) Join(ctx context.Context, cfg driver.SessionConfig, hooks Hooks) (*MemberSession, error) {
	if m.gate.watch != nil {
		hooks.counts = m.gate.watch.Pushed
	}
	s, err := m.open(ctx, cfg, hooks)
	if err != nil {
		return nil, err
	}
	return &MemberSession{s}, nil
}

// A MemberSession is a session at a member of a quorum. Its methods may be called concurrently.
type MemberSession struct{ *session }

// Ask is Acquire with a proposed token. The grant has that token if it is larger than the last
// token and the server's clock, and not too far ahead of the clock. place is the place in the
// queue, if req waits.
func (s *MemberSession) Ask(ctx context.Context, req *driver.Request, propose uint64) (
	reply driver.Reply, place uint64, err error) {
	if reply, place, err = s.acquire(ctx, req, propose); err != nil {
		return reply, place, err
	}
	s.mu.Lock()
	limit := s.cancelledUpTo(req.ID)
	s.mu.Unlock()
	if reply.Token == 0 || reply.Token > limit {
		return reply, place, nil
	}
	// A late cancellation may end this grant, but not under a larger token.
	token, _, err := s.raise(ctx, driver.Hold{Name: req.Name, ID: req.ID, Token: reply.Token}, limit+1, 0)
	switch {
	case err == nil:
		reply, err = s.granted(ctx, req, token, 0)
		return reply, place, err
	case driver.IsOver(err):
		err = fmt.Errorf("%w: an earlier exchange of this request was cancelled", driver.ErrUnavailable)
	case !errors.Is(err, driver.ErrUncertain) && !errors.Is(err, driver.ErrClosed): // the raise, but not the grant
		err = fmt.Errorf("%w: %v", driver.ErrUncertain, err)
	}
	return driver.Reply{}, 0, err
}

// Withdraw is Cancel for a request that goes on. It ends a grant only if its token is at most limit. So
// it may arrive as late as it likes: it ends no grant with a larger token. Withdraw returns the token of
// a grant that stays, or 0.
func (s *MemberSession) Withdraw(ctx context.Context, name, id string, limit uint64) (uint64, error) {
	s.unregister(id)
	s.remembers(id, name)
	return s.endUpTo(ctx, name, id, limit)
}

// Renew is driver.Session.Renew. The state of a grant that a late cancellation may end is unknown.
func (s *MemberSession) Renew(ctx context.Context, holds []driver.Hold) ([]driver.Change, error) {
	changes, err := s.session.Renew(ctx, holds)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range changes {
		if c := &changes[i]; c.State == driver.Granted && c.Token <= s.cancelledUpTo(holds[c.Index].ID) {
			c.State, c.Token = driver.Unknown, 0
		}
	}
	return changes, err
}

// AdoptMinimum is Adopt. It returns what is left of the minimum hold at this server.
func (s *MemberSession) AdoptMinimum(ctx context.Context, h driver.Hold, id, info string) (time.Duration, error) {
	return s.adopt(ctx, h, id, info)
}

// Pass is Release. propose is the token proposed for the next waiter, if there is one.
func (s *MemberSession) Pass(ctx context.Context, h driver.Hold, keep time.Duration, propose uint64) error {
	return s.pass(ctx, h, keep, propose)
}

// Raise gives the grant h a larger token. If lease is positive, the grant then lasts that long, or
// as long as before if that is longer. Raise returns the token of h and the server's clock. The token
// is larger than asked for if another grant came in between. Errors: as for Release.
func (s *MemberSession) Raise(ctx context.Context, h driver.Hold, token uint64, lease time.Duration) (
	uint64, time.Duration, error) {
	raised, clock, err := s.raise(ctx, h, token, lease)
	if err == nil && !s.holds(h.ID, raised, 0) { // cancelled meanwhile
		err = driver.ErrGone
	}
	if err != nil {
		return 0, 0, err
	}
	return raised, clock, nil
}

// Keep lengthens the minimum hold of the grant h: the name stays taken for left from now, at least. A grant of
// h.ID with a token above upTo is another one. Errors: as for Release.
func (s *MemberSession) Keep(ctx context.Context, h driver.Hold, upTo uint64, left time.Duration) error {
	c := s.b.keys(h.Name, "lzmt").str(h.ID).end().padded(h.Token, 16).end().padded(upTo, 16).end().micros(left).end()
	return verdict(s.b.run(ctx, s.b.scripts.keep, c))
}

// raise is the exchange of Raise.
func (s *MemberSession) raise(ctx context.Context, h driver.Hold, token uint64, lease time.Duration) (
	raised uint64, clock time.Duration, err error) {
	c := s.b.keys(h.Name, "lzmt").str(h.ID).end().padded(h.Token, 16).end().padded(token, 16).end().
		micros(lease).end()
	v, err := s.b.run(ctx, s.b.scripts.raise, c)
	if err != nil || v.Kind != List {
		return 0, 0, verdict(v, err)
	}
	if len(v.List) != 2 || v.List[0].Int <= 0 {
		return 0, 0, strange(v)
	}
	return uint64(v.List[0].Int), micros(v.List[1].Int), nil
}

// Move gives a waiter another place in the queue.
func (s *MemberSession) Move(ctx context.Context, name, id string, place uint64) error {
	c := s.b.keys(name, "lzmt").str(id).end()
	c.buf = strconv.AppendUint(c.buf, place, 10)
	c.end()
	return verdict(s.b.run(ctx, s.b.scripts.move, c))
}

// Claim asks the holders of the name at this server to Yield it to the waiter id. Holders do so if
// they lack a majority and have a higher rank. Rank 0 says that id had a majority, and that later
// grants of a majority have tokens above token. Such a claim ends a grant of which only the minimum
// hold is left, unless that was released under a larger token. If id reads, a writer's grant
// becomes a reader's.
// ErrGone: id does not wait here.
func (s *MemberSession) Claim(ctx context.Context, name, id string, rank int, token uint64) error {
	c := s.b.keys(name, "lzmt").str(id).end().number(rank).end().padded(token, 16).end()
	return verdict(s.b.run(ctx, s.b.scripts.claim, c))
}

// Yield gives the grant h to the waiter with the ID to, or to the next one if to does not wait
// here. The request of h then waits at the given place, or at the end if place is 0. The place lasts
// for h.Lease, or a TTL if that is 0; its grant takes block tokens. Yield returns the request's Wake
// and its place. Errors: as for Release.
func (s *MemberSession) Yield(ctx context.Context, h driver.Hold, to string, place uint64, block int) (
	<-chan uint64, uint64, error) {
	c := s.b.keys(h.Name, "lzmt").str(h.ID).end().padded(h.Token, 16).end().str(to).end()
	c.buf = strconv.AppendUint(c.buf, place, 10)
	c.end().micros(driver.LeaseWithin(h.Lease, s.ttl)).end().number(block).end()
	s.offers(h.ID, h.Token)
	v, err := s.b.run(ctx, s.b.scripts.yield, c)
	if err != nil || v.Kind != List {
		return nil, 0, verdict(v, err)
	}
	if len(v.List) != 2 {
		return nil, 0, strange(v)
	}
	wake, ok := s.waits(h.ID, uint64(v.List[0].Int))
	if !ok { // cancelled meanwhile
		return nil, 0, s.ensureCancelled(ctx, h.Name, h.ID)
	}
	return wake, uint64(v.List[1].Int), nil
}

// membership is what the scripts of a member know.
type membership struct {
	prefix     string
	quarantine time.Duration
	servers    string // 8 digits
}

const birth = "birth" // finds out and records whether the server may vote

// timeless are scripts that grant nothing, so any server may run them at any time.
var timeless = []string{"drop", "missing"}

// memberFiles names the files in lua of scripts that only a member has, or that a member has
// differently.
var memberFiles = map[string]string{
	"take":  "member_take",
	"raise": "hooks state common member_raise",
	"keep":  "hooks state common member_keep",
	"move":  "member_move",
	"claim": "hooks state common member_claim",
	"yield": "hooks state common member_yield",
	"birth": "member_birth",
}

// script returns the text of a member's script. All but birth and the timeless ones first check whether the
// server may vote, and add the clock to their answer.
func (m *membership) script(name, header string) string {
	header += locals(
		"PREFIX", m.prefix,
		"MARK", m.prefix+"b",
		"QUARANTINE", fmt.Sprintf("%016d", m.quarantine.Microseconds()),
		"SERVERS", m.servers,
		"LEAD", Lead(m.quarantine).Microseconds(),
		"NEWBORN", newborn,
	)
	text := body(strings.Replace(cmp.Or(memberFiles[name], files[name]), "hooks", "member_hooks", 1), nil)
	if name == birth || slices.Contains(timeless, name) {
		return header + text
	}
	return header + join("member") + "\nlocal function answer()" + text + "end\n" + join("member_clock")
}

// Lead returns how far a proposed token may be ahead of a member's clock. Suppose that the clocks differ
// by less than three quarters of a quarantine. Then after a server's quarantine its clock has passed all
// earlier tokens, by at least the longest block of tokens: it may give such a block below its clock.
func Lead(quarantine time.Duration) time.Duration {
	return quarantine/4 - driver.MaxTokens*time.Microsecond
}

// proposal adds the proposed token, which only the scripts of a member expect.
func (b *Backend) proposal(c *call, want uint64) *call {
	if b.member != nil {
		c.padded(min(want, maxToken), 16)
	}
	return c
}

// cutPlace cuts the place in the queue off a member's answer.
func cutPlace(v Value) (uint64, Value, error) {
	last := v.List[len(v.List)-1]
	place, err := strconv.ParseUint(last.Text, 10, 64)
	if err != nil || len(v.List) < 5 {
		return 0, v, strange(v)
	}
	v.List = v.List[:len(v.List)-1]
	return place, v, nil
}
