package holdfast

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// Option adjusts one lock. Few are needed: a lock without options waits its turn, renews its lease
// until the release, and is not reentrant.
type Option func(*options)

type options struct {
	reentrant bool
	maxHold   time.Duration
	minHold   time.Duration
	atMost    time.Duration
	every     time.Duration
	tries     int
	note      string
	labels    map[string]string
	err       error

	retryFailed bool
	fair        bool
	sticky      time.Duration

	waits func() // not nil in LockAll: called when the lock turns out not to be free, perhaps again
}

func (o *options) refuse(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("%w "+format, append([]any{ErrInvalid}, args...)...)
	}
}

func (o *options) reportWaits() {
	if o.waits != nil {
		o.waits()
	}
}

// Reentrant lets a context that already holds the lock take it again. The second lease is borrowed
// from the first: it has the same token, needs no exchange with the store, and ends no later.
// Without this option such a Lock fails at once with ErrDeadlock.
func Reentrant() Option { return func(o *options) { o.reentrant = true } }

// MaxHold ends the lease after d, or up to a hundredth earlier: it is then lost for ReasonMaxHold,
// and the client gives the name back when the lease's contexts have been cancelled. So another
// holder may begin while the work that hangs still ends.
//
// If the client is frozen or dead, the store frees the name: within 1.1 d, but not before a second.
// If d is longer than the TTL, it does so within half a TTL after d. A quorum takes a fortieth of the
// TTL longer, and a store whose leases end with a session up to a TTL (docs/guarantees.md). Extend
// moves the end.
//
// Any positive d is allowed; others make each call of the lock fail with ErrInvalid. The time runs while
// the store's answer is on its way, so a very short lease may have ended when Lock returns it. Its Err says that.
func MaxHold(d time.Duration) Option {
	return func(o *options) {
		if o.maxHold = min(d, forever/4); d <= 0 { // a deadline computed from it does not overflow
			o.refuse("MaxHold of %v: it must be positive", d)
		}
	}
}

// MinHold keeps the name taken for at least d from the grant, even after Release or the death of
// the process. A store that loses its data forgets that. So does a quorum of which a majority loses
// them within d, if d is longer than its quarantine. MinHold is for jobs that many machines start
// and one is to run; see [Client.OnlyOne]. A store without minimum holds refuses it with ErrInvalid
// (docs/guarantees.md has the stores).
func MinHold(d time.Duration) Option {
	return func(o *options) {
		if o.minHold = d; d <= 0 || d > driver.MaxHold {
			o.refuse("MinHold of %v: it must be positive and at most %v", d, driver.MaxHold)
		}
	}
}

// RetryFailed is for OnlyOne, and for the Do of a lock with MinHold: the name is not kept if f
// returns an error or panics. Another client, or the next call, may then run f again in the same
// tick. The name stays taken for its minimum hold if the process dies in f, or if the lease expires
// at the store before f returns. Without MinHold it is refused with ErrInvalid.
func RetryFailed() Option { return func(o *options) { o.retryFailed = true } }

// Fair gives a lock back to the store at every release. All calls for it are served in the order in
// which they reached the store, whichever client they belong to, and each has a grant of its own.
// Without this option the calls of one client may pass a mutex or a write lock among themselves for a
// short time, and share a read lock: see Config.Passes.
func Fair() Option { return func(o *options) { o.fair = true } }

// Sticky keeps the grant of a mutex with this client for d after each Release. Until then the next Lock
// or TryLock of the client, with the same options, takes it without an exchange with the store. It has
// its own, larger fencing token, which the store has recorded as given out before. For a name that
// mostly one process takes, again and again: then a Lock and its Release cost less than a
// microsecond.
//
// When another request queues for the name, in whatever program, the store calls the grant back by a
// push. The client gives an idle grant back at once, and one in use when its holder releases it, or
// after the passes that Config.Passes allows. If no push arrives, the client gives it back d after the
// last Release, and in any case at the first Release when the grant is older than d and a TTL. If the
// client crashes or is cut off, others wait until the lease has expired at the store: for a TTL at most,
// although nobody held the lock. Choose a short TTL if that is too long.
//
// A TryLock or Poll of another client does not queue, and calls nothing back: it fails with ErrHeld,
// also while the grant is idle. Holder.Sticky tells that it may be idle; Lock with WaitAtMost
// calls it back.
//
// A name that several clients want at once is not kept: then the option costs nothing and saves
// nothing. A client takes a name a million times a second at most, apart from the first 20,000 times:
// tokens of many stores are microseconds of a clock.
//
// ErrInvalid for everything but Client.Mutex, with Fair, MinHold, MaxHold or Poll, for a client with a
// History or without passes, and for a store that calls no grants back: the memory of a process and
// Redis do (one server, Sentinel, Cluster).
func Sticky(d time.Duration) Option {
	return func(o *options) {
		if o.sticky = min(d, forever/4); d <= 0 {
			o.refuse("Sticky of %v: it must be positive", d)
		}
	}
}

// WaitAtMost makes Lock fail after d with ErrHeld, which names the holder. The context bounds the
// wait as well; the one that ends first decides the error.
func WaitAtMost(d time.Duration) Option {
	return func(o *options) {
		if o.atMost = d; d <= 0 {
			o.refuse("WaitAtMost of %v: it must be positive; TryLock does not wait", d)
		}
	}
}

// Poll makes Lock try up to tries times, outside the queue, and then fail with ErrHeld. The first
// pause is about every, and each following one twice as long, up to eight times every; each is
// shortened by up to a half at random. Waiters in the queue go first, so a polling contender may
// starve. Poll is for callers who must not leave anything at the store while they wait.
func Poll(every time.Duration, tries int) Option {
	return func(o *options) {
		if o.every, o.tries = min(every, forever/(2*pollMost)), tries; every <= 0 || tries < 1 {
			o.refuse("Poll(%v, %d): both must be positive", every, tries)
		}
	}
}

// Note tells operators and waiters what the lock is held for.
func Note(text string) Option { return func(o *options) { o.note = text } }

// Label adds a label that operators and waiters see.
func Label(key, value string) Option {
	return func(o *options) {
		if key == "" {
			o.refuse("Label: the key is empty")
			return
		}
		labels := map[string]string{key: value}
		maps.Copy(labels, o.labels)
		labels[key] = value
		o.labels = labels
	}
}

// request makes the part of a lock that is the same for each attempt.
func (c *Client) request(name string, mode driver.Mode, n, limit int, opts []Option) (driver.Request, options) {
	var o options
	for i, opt := range opts {
		if opt == nil {
			o.refuse("option %d: it is nil", i)
			continue
		}
		opt(&o)
	}
	r := driver.Request{
		ID: "-", Name: name, Mode: mode, N: n, Limit: limit, MinHold: o.minHold, Info: c.describe(&o),
	}
	if o.err == nil {
		o.err = c.checkInfo(&o, r.Info)
	}
	if o.err == nil {
		o.err = r.Check()
	}
	if o.err == nil {
		o.err = c.keeps(&r, mode == driver.Shared)
	}
	if o.sticky > 0 {
		c.checkSticky(&r, &o)
	}
	if o.retryFailed && o.minHold == 0 {
		o.refuse("RetryFailed without MinHold (OnlyOne has it): the name of such a lock is not kept")
	}
	return r, o
}

// describe returns the Info of a lock with these options.
func (c *Client) describe(o *options) string {
	if o.note == "" && o.labels == nil && o.maxHold == 0 && o.sticky == 0 {
		return c.info
	}
	i := c.self
	if o.maxHold > 0 {
		i.HoldMS = max(o.maxHold.Milliseconds(), 1) // its last renewals make it last shorter and shorter
	}
	if o.sticky > 0 {
		i.StickyMS = max(o.sticky.Milliseconds(), 1)
	}
	i.Note = o.note
	i.Labels = mergeLabels(o.labels, i.Labels)
	return i.String()
}

// checkInfo refuses an Info that is too long, and says what is allowed for the note, or for the labels if
// these alone are too long. A store counts the bytes of the encoded text.
func (c *Client) checkInfo(o *options, info string) error {
	if len(info) <= driver.MaxInfo {
		return nil
	}
	short := *o
	short.note = "."
	rest := len(c.describe(&short)) - 1
	if o.note != "" && rest < driver.MaxInfo {
		return fmt.Errorf("%w note: it takes %d bytes with its escapes; allowed are %d beside the rest, which is host, "+
			"user, program and labels", ErrInvalid, len(info)-rest, driver.MaxInfo-rest)
	}
	return fmt.Errorf("%w labels: they take %d bytes, with host, user and program; allowed are %d", ErrInvalid, rest,
		driver.MaxInfo)
}

// mergeLabels returns labels, and those of more that labels lacks.
func mergeLabels(labels, more map[string]string) map[string]string {
	all := maps.Clone(more)
	if all == nil {
		return labels
	}
	maps.Copy(all, labels)
	return all
}

// merge adds the options of another part of LockAll that is the same lock.
func (o *options) merge(p *options) {
	o.reentrant = o.reentrant || p.reentrant
	o.retryFailed = o.retryFailed || p.retryFailed
	o.fair = o.fair || p.fair
	o.maxHold = earlier(o.maxHold, p.maxHold)
	o.minHold = max(o.minHold, p.minHold)
	o.atMost = earlier(o.atMost, p.atMost)
	if o.every == 0 {
		o.every, o.tries = p.every, p.tries
	}
	if o.sticky = earlier(o.sticky, p.sticky); o.fair || o.minHold > 0 || o.maxHold > 0 || o.every > 0 {
		o.sticky = 0 // as checkSticky refuses it
	}
	switch {
	case o.note == "":
		o.note = p.note
	case p.note != "" && p.note != o.note:
		o.note += "; " + p.note
	}
	o.labels = mergeLabels(o.labels, p.labels)
	if o.err == nil {
		o.err = p.err
	}
}

// earlier returns the shorter of two durations, where 0 means none.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// keeps returns an ErrInvalid if the store does not keep what r asks for.
func (c *Client) keeps(r *driver.Request, readWrite bool) error {
	switch k := c.backend.Kinds(); {
	case r.Mode == driver.Permits && !k.Semaphores:
		return c.lacks("semaphores")
	case readWrite && !k.Shared:
		return c.lacks("read/write locks")
	case r.MinHold > 0 && !k.MinHold:
		return c.lacks("minimum holds")
	}
	return nil
}

// lacks is the refusal of what the store does not keep.
func (c *Client) lacks(what string) error {
	has := []string{"mutexes"}
	k := c.backend.Kinds()
	for _, x := range []struct {
		has  bool
		name string
	}{{k.Shared, "read/write locks"}, {k.Semaphores, "semaphores"}, {k.Latches, "latches"}, {k.MinHold, "minimum holds"}} {
		if x.has {
			has = append(has, x.name)
		}
	}
	store := c.backend.Name()
	if k.Setting != "" {
		store += " with " + k.Setting
	}
	return fmt.Errorf("%w use: this store (%s) keeps no %s; it keeps %s", ErrInvalid, store, what, strings.Join(has, ", "))
}
