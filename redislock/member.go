package redislock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A Member is one server of a quorum of independent servers, for package quorum. Its scripts
// differ from those of a Backend in five ways: they do nothing before the server has been
// up for the quarantine; a token can be proposed, so that all servers give the same; an answer
// tells the place in line; every answer and push tells the server's clock; and there are scripts by which
// contenders that share the servers among them come to terms.
type Member struct {
	*Backend
	gate *gate
}

// Hooks are told what a member's server pushes. They are called with a lock held: they must
// not block, nor call the session.
type Hooks struct {
	// Pushed: there is something in the Wake of the request with this id.
	Pushed func(id string)

	// Claimed: the request named by asks the one with this id to give way here; see
	// MemberSession.Claim.
	Claimed func(id string, rank int, by string)

	counts func(clock time.Duration) bool // see Watch.Pushed
}

// NewMember is New for a member of a quorum. Nothing is granted before the server has been up for the
// quarantine. servers is what tells this set of servers from others: whoever names another is refused.
// watch, if not nil, looks after the server's clock. Errors: those of [CheckMember].
func NewMember(conn Conn, prefix string, quarantine time.Duration, servers string, watch Watch) (*Member, error) {
	if err := CheckMember(prefix, quarantine); err != nil {
		return nil, err
	}
	if conn.Cluster() {
		return nil, fmt.Errorf("%w: a member of a quorum must be a server of its own, not a Cluster", driver.ErrInvalid)
	}
	sum := sha256.Sum256([]byte(servers))
	g := &gate{Conn: conn, prefix: prefix, watch: watch}
	b := newBackend(g, &Config{Prefix: prefix}, &membership{prefix, quarantine, hex.EncodeToString(sum[:4])}, nil)
	g.births, g.timeless = b.scripts.birth, b.scripts.drop
	return &Member{b, g}, nil
}

// CheckMember returns an error that is ErrInvalid unless prefix is not empty and has letters, digits and
// . : _ - only, and quarantine is a TTL that is allowed.
func CheckMember(prefix string, quarantine time.Duration) error {
	if prefix == "" || strings.ContainsFunc(prefix, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".:_-", r)
	}) {
		return fmt.Errorf("%w prefix %q: it must not be empty; allowed are letters, digits and . : _ -", driver.ErrInvalid, prefix)
	}
	if quarantine < driver.MinTTL || quarantine > driver.MaxTTL {
		return fmt.Errorf("%w quarantine %v: allowed are %v to %v", driver.ErrInvalid, quarantine, driver.MinTTL, driver.MaxTTL)
	}
	return nil
}

// Birth is what a member's server says of itself.
type Birth struct {
	Clock time.Duration // its clock, since 1970
	Left  time.Duration // how long it stays out yet; 0: it takes part
	Run   string        // tells this run of this server from all others
	Born  time.Duration // its clock when it was born, which tells this life of it from all others

	Era   string        // which time Skew refers to: 8 characters, or none
	Skew  time.Duration // by how much its clock was ahead of that time
	Noted time.Duration // its clock when that was put on record
}

// Birth asks the server how long it stays out, and puts on record that it has been born if it
// is not yet. declare says that it is new: it takes part at once then.
//
// Errors: ErrRefused if it is on record with another quarantine or as one of other servers, if conn leads
// to another database than 0, or to a Redis before 7; ErrUnavailable if the server is a replica;
// those of Conn.
func (m *Member) Birth(ctx context.Context, declare bool) (Birth, error) {
	if declare {
		return m.gate.birth(ctx, "new")
	}
	return m.gate.birth(ctx)
}

// Note puts on record by how much the server's clock is ahead of the time of an era (8 characters), if what is
// on record is still of the birth and era of b. It returns what is on record then. set says that the clock was
// set: the server forgets who has what, and stays out for the quarantine. Errors: those of Birth.
func (m *Member) Note(ctx context.Context, b Birth, era string, skew time.Duration, set bool) (Birth, error) {
	how := "0"
	if set {
		how = "1"
	}
	return m.gate.birth(ctx, "note", fmt.Sprintf("%016d", b.Born.Microseconds()), b.Era, era, fmt.Sprintf("%+016d", skew.Microseconds()), how)
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

// A MemberSession is a session at a member of a quorum.
type MemberSession struct{ *session }

// Ask is Acquire. The token is the one proposed, if it is larger than the last one and than
// the server's clock, and not too far ahead of that. place is the place in line, if req waits.
func (s *MemberSession) Ask(ctx context.Context, req *driver.Request, propose uint64) (reply driver.Reply, place uint64, err error) {
	return s.acquire(ctx, req, propose)
}

// Pass is Release. If somebody waits, propose is proposed as its token.
func (s *MemberSession) Pass(ctx context.Context, h driver.Hold, keep time.Duration, propose uint64) error {
	return s.pass(ctx, h, keep, propose)
}

// Raise gives the grant h a larger token, and renews it if renew is true. It returns the token
// that h then has, which is larger than asked for if another grant has come in between, and the
// server's clock. Errors as for Release.
func (s *MemberSession) Raise(ctx context.Context, h driver.Hold, token uint64, renew bool) (uint64, time.Duration, error) {
	c := newCall().name(s.b.prefix, h.Name, "lzmt").str(h.ID).end().padded(h.Token, 16).end().padded(token, 16).end()
	if renew {
		c.micros(s.ttl).end()
	} else {
		c.str("0").end()
	}
	v, err := s.b.run(ctx, s.b.scripts.raise, c)
	if err != nil || v.Kind != List {
		return 0, 0, verdict(v, err)
	}
	if len(v.List) != 2 || v.List[0].Int <= 0 {
		return 0, 0, strange(v)
	}
	raised := uint64(v.List[0].Int)
	if !s.holds(h.ID, raised) { // cancelled meanwhile
		return 0, 0, driver.ErrGone
	}
	return raised, micros(v.List[1].Int), nil
}

// Move gives a waiter another place in line.
func (s *MemberSession) Move(ctx context.Context, name, id string, place uint64) error {
	c := newCall().name(s.b.prefix, name, "lzmt").str(id).end()
	c.buf = strconv.AppendUint(c.buf, place, 10)
	c.end()
	return verdict(s.b.run(ctx, s.b.scripts.move, c))
}

// Claim asks those who hold the name at this server to Yield it to the waiter id, if they lack a
// majority and have a higher rank. ErrGone: id does not wait here.
func (s *MemberSession) Claim(ctx context.Context, name, id string, rank int) error {
	c := newCall().name(s.b.prefix, name, "lzmt").str(id).end().number(rank).end()
	return verdict(s.b.run(ctx, s.b.scripts.claim, c))
}

// Yield gives the grant h to the waiter with the id to, or whoever is next, and waits in its
// turn, at the place given, or at the end if that is 0. It returns the place. The request
// then has the Wake that is returned. Errors as for Release.
func (s *MemberSession) Yield(ctx context.Context, h driver.Hold, to string, place uint64) (<-chan uint64, uint64, error) {
	c := newCall().name(s.b.prefix, h.Name, "lzmt").str(h.ID).end().padded(h.Token, 16).end().str(to).end()
	c.buf = strconv.AppendUint(c.buf, place, 10)
	c.end().micros(s.ttl).end()
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
		return nil, 0, s.Cancel(ctx, h.Name, h.ID)
	}
	return wake, uint64(v.List[1].Int), nil
}

// membership is what the scripts of a member know.
type membership struct {
	prefix     string
	quarantine time.Duration
	servers    string // 8 digits
}

const (
	timeless = "drop"  // the script of a member that grants nothing: any server may run it, at whatever time
	birth    = "birth" // the one that finds out, and puts on record, whether the server may take part
)

// memberFiles are the files in lua that make the scripts which only a member has, or has otherwise.
var memberFiles = map[string]string{
	"take":  "member_take",
	"raise": "hooks state common member_raise",
	"move":  "member_move",
	"claim": "hooks state common member_claim",
	"yield": "hooks state common member_yield",
	"birth": "member_birth",
}

// script returns the text of a member's script. All but those two begin with the question whether the server may take
// part, and end with the clock.
func (m *membership) script(name, header string) string {
	header += locals(
		"PREFIX", m.prefix,
		"MARK", m.prefix+"b",
		"QUARANTINE", fmt.Sprintf("%016d", m.quarantine.Microseconds()),
		"SERVERS", m.servers,
		"LEAD", Lead(m.quarantine).Microseconds(),
		"NEWBORN", newborn,
	)
	text := body(strings.Replace(cmp.Or(memberFiles[name], files[name]), "hooks", "member_hooks", 1))
	if name == birth || name == timeless {
		return header + text
	}
	return header + join("member") + "\nlocal function answer()" + text + "end\n" + join("member_clock")
}

// Lead is how far ahead of a member's clock a proposed token may be.
func Lead(quarantine time.Duration) time.Duration { return quarantine / 4 }

// proposal adds the token that is proposed, which only the scripts of a member expect.
func (b *Backend) proposal(c *call, want uint64) *call {
	if b.member != nil {
		c.padded(min(want, maxToken), 16)
	}
	return c
}

// cutPlace takes the place in line off a member's answer.
func cutPlace(v Value) (uint64, Value, error) {
	last := v.List[len(v.List)-1]
	place, err := strconv.ParseUint(last.Text, 10, 64)
	if err != nil || len(v.List) < 5 {
		return 0, v, strange(v)
	}
	v.List = v.List[:len(v.List)-1]
	return place, v, nil
}
