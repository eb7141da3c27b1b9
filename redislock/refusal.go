package redislock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// refusals are error replies with a special meaning. docs/redis.md has the same table.
var refusals = []struct {
	code    string
	is      error
	moving  error // the error if another server may replace this one; nil: the same
	meaning string
}{
	{"NOAUTH", driver.ErrRefused, nil, "the server wants a password"},
	{"WRONGPASS", driver.ErrRefused, nil, "the user or password is wrong"},
	{"NOPERM", driver.ErrRefused, nil, "the user lacks a permission"},
	{"DAMAGED", driver.ErrDamaged, nil, ""},
	{"WRONGTYPE", driver.ErrDamaged, nil, "a key has another type than holdfast gives it"},
	{"READONLY", driver.ErrRefused, driver.ErrUnavailable, "the server is a read-only replica"},
	{"MASTERDOWN", driver.ErrRefused, driver.ErrUnavailable, "the server is a replica and has lost its primary"},
	{"MISCONF", driver.ErrRefused, nil, "the server cannot save its data to disk, and takes no writes until it can"},
	{"OOM", driver.ErrRefused, nil, "the server's memory is full (maxmemory)"},
	{"NOREPLICAS", driver.ErrRefused, driver.ErrUnavailable,
		"the server has fewer replicas than min-replicas-to-write asks for"},
	{"LOADING", driver.ErrUnavailable, nil, "the server is loading its data"},
	{"BUSY", driver.ErrUnavailable, nil, "the server runs another script"},
	{"CLUSTERDOWN", driver.ErrUnavailable, nil, "the Cluster does not serve all its slots"},
	{"TRYAGAIN", driver.ErrUnavailable, nil, ""},
	{"UNBLOCKED", driver.ErrUnavailable, nil, ""},
}

// scriptUser begins the reply to a script with a command that its user may not run.
const scriptUser = "The user executing the script can't"

// Refusal is an error reply of a server. It wraps the sentinel for its meaning and the client's
// error.
type Refusal struct {
	Code    string // the first word of the reply, such as READONLY
	Primary string // of a replica, host:port, if known

	is, cause error
	text      string
	denied    bool // the user lacks a permission
}

// Error says what the reply means, and quotes the reply.
func (e *Refusal) Error() string {
	s := e.is.Error() + ": " + e.text
	if e.Primary != "" {
		s += "; its primary is " + e.Primary
	}
	return s
}

// Unwrap returns the sentinel and the cause.
func (e *Refusal) Unwrap() []error { return []error{e.is, e.cause} }

// Is reports whether the user lacks a permission, for [fs.ErrPermission].
func (e *Refusal) Is(target error) bool { return e.denied && target == fs.ErrPermission }

// ServerError wraps an error reply with the sentinel for its meaning. text is the reply, cause the
// client's error. moves means that the client finds the successor of a server, as in a Cluster or
// behind sentinels. Then a refusal of a demoted server is ErrUnavailable, because a retry may
// succeed.
func ServerError(text string, cause error, moves bool) error {
	said := spoken(text)
	code, rest, _ := strings.Cut(said, " ")
	for _, r := range refusals {
		if r.code != code {
			continue
		}
		e := &Refusal{Code: code, is: r.is, cause: cause, denied: code == "NOPERM"}
		if moves && r.moving != nil {
			e.is = r.moving
		}
		switch {
		case code == "DAMAGED":
			e.text = rest
		case r.meaning == "":
			e.text = said
		case code == "NOAUTH", code == "MISCONF": // the rest is about the protocol, or long and about a log
			e.text = r.meaning + " (" + code + ")"
		default:
			e.text = r.meaning + " (" + said + ")"
		}
		return e
	}
	// ErrRefused, for instance an unknown command: a retry does not help.
	e := &Refusal{Code: code, is: driver.ErrRefused, cause: cause, text: said}
	switch {
	case strings.Contains(said, "non local key"):
		e.is = driver.ErrUncertain // refused in the middle of a script, which may have written before
	case strings.Contains(said, "max number of clients"), strings.Contains(said, "shutting down"):
		e.is = driver.ErrUnavailable
	case code == "MOVED", code == "ASK":
		e.text = "the server belongs to a Cluster, and was not addressed as one (redis+cluster://): " + said
	case strings.Contains(said, scriptUser): // as NOPERM, of a command in a script
		e.text = "the user lacks a permission (" + said[strings.Index(said, scriptUser):] + ")"
		e.denied = true
	case strings.Contains(said, "value is not a"): // an integer, a valid float: about the value of a key
		e.is = driver.ErrDamaged
	}
	return e
}

// momentary returns err for a request that may have a place in the queue or a grant. ErrRefused
// would mean that it has neither. A short lack of replicas is no reason to give up the place.
func momentary(err error) error {
	if r := (*Refusal)(nil); errors.As(err, &r) && r.Code == "NOREPLICAS" {
		e := *r
		e.is = driver.ErrUnavailable
		return &e
	}
	return err
}

// spoken returns the reply without what Redis adds about the script.
func spoken(text string) string {
	if i := strings.Index(text, " script: "); i > 0 { // Redis 7
		text = text[:i]
	}
	if strings.HasPrefix(text, "ERR Error running script") || strings.HasPrefix(text, "@user_script") { // Redis 6
		if i := strings.LastIndex(text, "-"); i >= 0 {
			if first, _, _ := strings.Cut(text[i+1:], " "); first != "" && first == strings.ToUpper(first) {
				return text[i+1:]
			}
		}
		if i := strings.LastIndex(text, "DAMAGED "); i >= 0 {
			return text[i:]
		}
	}
	return text
}

// whatIsWrong returns what err says about a damaged record.
func whatIsWrong(err error) string {
	if r := (*Refusal)(nil); errors.As(err, &r) {
		return r.text
	}
	return strings.TrimPrefix(err.Error(), driver.ErrDamaged.Error()+": ")
}

// A guide finds out which server is the primary of a replica.
type guide struct {
	mu      sync.Mutex
	asked   time.Time
	primary string
}

// directed adds the address of the primary to an error of a replica, if the server reports it. It
// asks at most once in a few seconds.
func (g *guide) directed(ctx context.Context, conn Conn, err error) error {
	var r *Refusal
	asker, ok := conn.(Asker)
	if !ok || !errors.As(err, &r) || r.Code != "READONLY" && r.Code != "MASTERDOWN" {
		return err
	}
	const again, patience = 5 * time.Second, time.Second
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.asked) > again {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		g.asked, g.primary = time.Now(), ""
		all := Ask(ctx, asking{asker}, "ROLE") // the user may lack the permission
		if len(all) == 1 && all[0].Err == nil && len(all[0].Value.List) >= 3 && all[0].Value.List[0].Text == "slave" {
			g.primary = fmt.Sprintf("%s:%d", all[0].Value.List[1].Text, all[0].Value.List[2].Int)
		}
	}
	r.Primary = g.primary
	return err
}
