package holdfast

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Holder describes a holder or a waiter, as its client described itself.
type Holder struct {
	Host    string
	PID     int
	User    string
	Program string
	Note    string
	Labels  map[string]string
	Command string // its command line; "" unless it was told to show it

	ID      string        // of the grant, or of the place in the queue
	Shared  bool          // holds or wants the lock for reading
	Permits int           // of a semaphore; 1 otherwise
	Token   uint64        // fencing token; 0 for a waiter
	Since   time.Time     // when it was granted, or joined the queue; see Undated
	Left    time.Duration // until it expires unless renewed; 0 if another program's is not known
	Kept    bool          // released, but the name is kept for a minimum hold

	// Partial: of the servers of a quorum that have answered, less than a majority names this grant. It is
	// still being made; or its client has ended while a server was away, and the server's grant ends with
	// its lease; or servers that have it are away.
	Partial bool

	// Abandoned: nobody has the lock. The grant is of an earlier call of this client. The store's answer to that was
	// lost, or the client has given the grant back unused, or with ReleaseNow, and the store has not done that yet.
	// The grant ends when the store gets the message, or with its lease. Then a minimum hold still keeps the name.
	Abandoned bool

	// Undated says that another program made the grant, and that the store does not know when. Since is
	// then the time of the reading.
	Undated bool

	// Lease is how long the grant or place lasts after a renewal, as its client says; Lease less Left
	// is how long ago the last renewal was. 0: not known. Stores whose leases end with a session
	// (ZooKeeper) report no renewals: there Left is the whole timeout of the session.
	//
	// Near the end that MaxHold or Extend sets, a renewal makes the lease last no longer than to that
	// end, and a tenth of what is left then. So there the rule does not apply.
	Lease time.Duration

	// Local is how many more calls of the same client waited for the lock when this one asked for it.
	// They may get it from each other, without an exchange with the store: see Config.Passes. Tokens is
	// how many fencing tokens the grant has for that, or how many a waiter asks for; 1 without it. Token
	// is the largest of them, and a lease has it or one just below it.
	Local, Tokens int

	// MaxHold is the MaxHold that the grant was asked for with, as its client says; 0: none. The store
	// does not know what Extend has changed since.
	MaxHold time.Duration

	// Sticky is the Sticky that the grant was asked for with; 0: none. Its client may keep it for so long
	// after a release: the store does not know whether a call of that client has the lock now.
	Sticky time.Duration
}

// String returns one line for people: deploy.sh (ci@runner-7:4211) "release 12" for 12s.
func (h *Holder) String() string {
	var b strings.Builder
	switch {
	case h.Partial:
		fmt.Fprintf(&b, "at too few servers of the quorum, for another %v: ", round(h.Left))
	case h.Kept:
		fmt.Fprintf(&b, "kept for another %v after ", round(h.Left))
	case h.Abandoned:
		fmt.Fprintf(&b, "left by an earlier call of this client, for another %v: ", round(h.Left))
	}
	b.WriteString(h.who())
	if h.Note != "" {
		fmt.Fprintf(&b, " %q", h.Note)
	}
	if !h.Undated && !h.Partial {
		fmt.Fprintf(&b, " for %v", round(time.Since(h.Since)))
	}
	return b.String()
}

// who returns the program and where it runs: deploy.sh (ci@runner-7:4211). It is not known for
// programs that share the store and do not use holdfast.
func (h *Holder) who() string {
	if h.Host == "" && h.PID == 0 {
		return "another program"
	}
	var b strings.Builder
	if h.Program != "" {
		b.WriteString(oneWord(h.Program) + " ")
	}
	b.WriteByte('(')
	if h.User != "" {
		b.WriteString(oneWord(h.User) + "@")
	}
	fmt.Fprintf(&b, "%s:%d)", oneWord(h.Host), h.PID)
	return b.String()
}

// oneWord returns text that another client chose, quoted if it could control a terminal or a log, or
// look like more than one word.
func oneWord(text string) string {
	if quoted := strconv.Quote(text); strings.Contains(text, " ") || len(quoted) != len(text)+2 {
		return quoted
	}
	return text
}

func round(d time.Duration) time.Duration {
	switch {
	case d > 10*time.Second:
		return d.Round(time.Second)
	case d > 100*time.Millisecond:
		return d.Round(100 * time.Millisecond)
	default:
		return d.Round(time.Millisecond)
	}
}

// Record is the state of one name at the store.
type Record struct {
	Name     string
	Kind     string   // "lock", "semaphore", "latch", or "" if it is not in use
	Limit    int      // of a semaphore
	LimitSet bool     // by SetLimit: the limit stays while nobody uses the semaphore
	Count    int64    // of a latch: what is left
	Token    uint64   // the highest token given out that the store still knows
	Holders  []Holder // in order of their tokens
	Waiters  []Holder // the head of the queue, in order
	Waiting  int      // length of the queue

	// Partial is why nobody gets a name that has no holder: requests that have servers of a quorum,
	// but too few of them ([Holder.Partial]), leave too few to others. The name is in use then. FreeIn is
	// when enough servers are free, unless a grant is renewed, or servers that are away are needed, too.
	Partial []Holder
	FreeIn  time.Duration

	// Damaged says what is wrong with the store's record of the name, if it cannot be read; all
	// other fields but Name are zero then. Inspect returns ErrDamaged instead.
	Damaged string
}

// Inspect returns the state of a name: one exchange with the store. A name that is not in
// use has a Record with an empty Kind. Errors: ErrInvalid, ErrUnavailable, ErrUncertain,
// ErrRefused, ErrDamaged.
func (c *Client) Inspect(ctx context.Context, name string) (Record, error) {
	err := c.checkName(name)
	var r driver.Record
	if err == nil {
		r, err = c.inspect(ctx, name)
	}
	if err != nil {
		return Record{}, &Error{Op: "inspect", Name: name, Err: explain(ctx, err)}
	}
	return c.record(r), nil
}

func (c *Client) inspect(ctx context.Context, name string) (r driver.Record, err error) {
	err = c.repeatRead(ctx, func() (err error) {
		r, err = c.store.Inspect(ctx, name)
		return err
	})
	return r, asRead(err)
}

// Locks yields the names in use that begin with prefix, in byte order, with their state. It asks
// the store page by page; names that are taken or freed meanwhile may or may not be seen. An error
// ends the sequence: those of Inspect, and ErrInvalid for a prefix that no name can have.
func (c *Client) Locks(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		const page = 100
		for after := ""; ; {
			var list []driver.Record
			err := c.usable()
			if err == nil {
				err = driver.CheckPrefix(prefix)
			}
			if err == nil {
				err = c.repeatRead(ctx, func() (err error) {
					list, err = c.store.List(ctx, prefix, after, page)
					return err
				})
			}
			if err != nil {
				yield(Record{}, &Error{Op: "list", Name: prefix, Err: explain(ctx, asRead(err))})
				return
			}
			for _, r := range list {
				if !yield(c.record(r), nil) {
					return
				}
			}
			if len(list) < page {
				return
			}
			after = list[len(list)-1].Name
		}
	}
}

// Break ends the grant with this token, which Inspect shows, against its holder's will. The holder
// learns of it at its next renewal. A fenced resource refuses its later writes, because every later
// token is larger. reason is for people, at most 1,024 bytes: the store keeps it with who broke the
// grant and when, and the holder's error shows it. [Client.Revoke] only asks the holder.
//
// Errors: ErrGone if no grant has this token; ErrUncertain if the answer was lost, also when the
// grant has ended meanwhile; ErrUnrecorded if the grant has ended and the store has not confirmed
// that it keeps the reason; ErrInvalid, ErrUnavailable, ErrRefused, ErrDamaged.
func (c *Client) Break(ctx context.Context, name string, token uint64, reason string) error {
	err := c.checkName(name)
	if err == nil {
		err = c.breakGrant(ctx, name, token, reason)
	}
	if err != nil {
		err = &Error{Op: "break", Name: name, Err: missing(explain(ctx, err), "no grant has token %d", token)}
	}
	c.reportBreak(name, token, err)
	return err
}

// checkName checks the client and the name of an operator's method.
func (c *Client) checkName(name string) error {
	if err := c.usable(); err != nil {
		return err
	}
	return driver.CheckName(name)
}

func (c *Client) record(r driver.Record) Record {
	out := Record{Name: r.Name, Limit: r.Limit, LimitSet: r.Set, Count: r.Count, Token: r.Token, Waiting: r.Waiting,
		FreeIn: r.FreeIn, Damaged: r.Damaged}
	out.Kind = [...]string{"", "lock", "semaphore", "latch"}[r.Kind]
	for i := range r.Holders {
		out.Holders = append(out.Holders, *c.holder(&r.Holders[i]))
	}
	for i := range r.Waiters {
		out.Waiters = append(out.Waiters, *c.holder(&r.Waiters[i]))
	}
	for i := range r.Partial {
		out.Partial = append(out.Partial, *c.holder(&r.Partial[i]))
	}
	return out
}

func (c *Client) holder(h *driver.Holder) *Holder {
	if h == nil {
		return nil
	}
	i := driver.ParseInfo(h.Info)
	asked := driver.Request{Tokens: i.Tokens}
	return &Holder{
		Host: i.Host, PID: i.PID, User: i.User, Program: i.Program, Note: i.Note, Labels: i.Labels,
		Command: i.Command, Local: i.Local, Tokens: asked.Granted(h.Token, c.backend.Kinds()), Lease: millis(i.LeaseMS),
		MaxHold: millis(i.HoldMS), Sticky: millis(i.StickyMS),
		ID: h.ID, Shared: h.Mode == driver.Shared, Permits: h.N, Token: h.Token,
		Since: time.Now().Add(-h.Age), Left: h.Left, Kept: h.Kept, Partial: h.Partial,
		Abandoned: c.abandoned.has(h.ID),
		Undated:   h.Age == 0 && i.Host == "" && i.PID == 0,
	}
}

// millis returns a duration that another client has told; 0 if no client can mean it.
func millis(n int64) time.Duration {
	if n < 0 || n > int64(forever/time.Millisecond) {
		return 0
	}
	return time.Duration(n) * time.Millisecond
}

// lastHolder returns the last holder that the store has named. How long it has held the lock, and for
// how long it is kept, count from then.
func (a *attempt) lastHolder() *Holder {
	h := a.l.c.holder(a.holder)
	if h != nil {
		ago := a.l.c.coarseNow() - a.named
		h.Since, h.Left = h.Since.Add(-ago), max(h.Left-ago, 0)
	}
	return h
}
