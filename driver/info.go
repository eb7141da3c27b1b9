package driver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits that every store can rely on.
const (
	MaxName  = 512     // bytes in a name
	MaxInfo  = 4096    // bytes in an encoded Info
	MaxLimit = 1 << 30 // permits of a semaphore

	// MaxTokens is how many tokens a grant may take. Tokens of many stores are microseconds of a
	// clock; a block is a millisecond at most, so tokens do not run ahead of the clock for longer.
	MaxTokens = 1000

	// MaxCallBackTokens is how many a grant with Request.CallBack may take. Its client uses them without
	// an exchange, which may be faster than one in each microsecond. So a store whose tokens are times
	// has to bound them (Kinds.Bounded).
	MaxCallBackTokens = 1 << 14

	MinTTL  = 100 * time.Millisecond
	MaxTTL  = 24 * time.Hour
	MaxHold = 366 * 24 * time.Hour // longest minimum hold
)

// Info describes a client, a holder or a waiter, for people. Stores keep it as the string that
// String returns and never parse it.
type Info struct {
	Host    string            `json:"host,omitempty"`
	PID     int               `json:"pid,omitempty"`
	User    string            `json:"user,omitempty"`
	Program string            `json:"prog,omitempty"`
	Note    string            `json:"note,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`

	// Command is the command line. It may contain secrets, so a client sends it only if it is told to.
	Command string `json:"cmd,omitempty"`

	// LeaseMS is how long a renewal makes the lease last, in milliseconds. 0: not known. It is the
	// client's word, as all of Info is: a store does not use it.
	LeaseMS int64 `json:"lease,omitempty"`

	// HoldMS is the maximum hold that the grant was asked for with, in milliseconds. 0: none. A
	// renewal makes the lease last LeaseMS, or about as long as is left of the maximum hold.
	HoldMS int64 `json:"hold,omitempty"`

	// Tokens is how many fencing tokens the grant asks for. 0: one. Local is how many more calls of the
	// client waited for the lock when it asked. It may pass the lock on to them under the grant.
	Tokens int `json:"tokens,omitempty"`
	Local  int `json:"local,omitempty"`

	// StickyMS is for how long the client keeps the grant after a release, in milliseconds, unless
	// somebody waits for it. 0: not at all.
	StickyMS int64 `json:"sticky,omitempty"`
}

// String encodes i for a store: one line of JSON.
func (i Info) String() string {
	b, err := json.Marshal(i)
	if err != nil { // cannot happen: strings and an int
		return "{}"
	}
	return string(b)
}

// ParseInfo decodes the result of String. Text that another program wrote in another form becomes
// the Note, so that operators still see it.
func ParseInfo(s string) Info {
	var i Info
	if s == "" {
		return i
	}
	if err := json.Unmarshal([]byte(s), &i); err != nil {
		return Info{Note: s}
	}
	if len(i.Labels) == 0 {
		i.Labels = nil // as String leaves them out
	}
	return i
}

// CheckName returns an ErrInvalid that says what is wrong with name, or nil.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w name: it is empty; allowed is any UTF-8 text of 1 to %d bytes", ErrInvalid, MaxName)
	case len(name) > MaxName:
		return fmt.Errorf("%w name: it has %d bytes; allowed are 1 to %d", ErrInvalid, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w name: %q is not valid UTF-8", ErrInvalid, name)
	}
	return nil
}

// CheckPrefix returns an ErrInvalid that says why no name begins with prefix, or nil.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return CheckName(prefix)
}

// Check returns an ErrInvalid that says what is wrong with c, or nil. Backends call it in Open.
func (c *SessionConfig) Check() error {
	switch {
	case c.ID == "" || len(c.ID) > 32:
		return fmt.Errorf("%w session id: %d bytes; allowed are 1 to 32", ErrInvalid, len(c.ID))
	case strings.IndexFunc(c.ID, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'z') }) >= 0:
		return fmt.Errorf("%w session id %q: allowed are 0-9 and a-z", ErrInvalid, c.ID)
	case c.TTL < MinTTL || c.TTL > MaxTTL:
		return fmt.Errorf("%w ttl %v: allowed are %v to %v", ErrInvalid, c.TTL, MinTTL, MaxTTL)
	case len(c.Info) > MaxInfo:
		return fmt.Errorf("%w session info: %d bytes; allowed are %d", ErrInvalid, len(c.Info), MaxInfo)
	}
	return nil
}

// CheckID returns an ErrInvalid that says what is wrong with id as a Request.ID, or nil.
func CheckID(id string) error {
	if id == "" || len(id) > 48 {
		return fmt.Errorf("%w request id: %d bytes; allowed are 1 to 48", ErrInvalid, len(id))
	}
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-' {
			return fmt.Errorf("%w request id %q: allowed are 0-9, a-z and -", ErrInvalid, id)
		}
	}
	return nil
}

// CheckLimit returns an ErrInvalid if Backend.SetLimit does not allow limit, or nil.
func CheckLimit(limit int) error {
	if limit < 0 || limit > MaxLimit {
		return fmt.Errorf("%w limit %d: allowed are 1 to %d, and 0 to remove it", ErrInvalid, limit, MaxLimit)
	}
	return nil
}

// CheckRemaining returns an ErrInvalid if Session.Reduce does not allow n, or nil.
func CheckRemaining(n int) error {
	if n < 1 || n > MaxLimit {
		return fmt.Errorf("%w number of permits that remain, %d: allowed are 1 to %d", ErrInvalid, n, MaxLimit)
	}
	return nil
}

// Check returns an ErrInvalid that says what is wrong with r, or nil. Package holdfast calls it
// before it sends the request to a store.
func (r *Request) Check() error {
	if err := errors.Join(CheckName(r.Name), CheckID(r.ID)); err != nil {
		return err
	}
	switch {
	case r.Mode < Exclusive || r.Mode > Permits:
		return fmt.Errorf("%w mode %d", ErrInvalid, r.Mode)
	case r.Mode != Permits && (r.N != 1 || r.Limit != 0):
		return fmt.Errorf("%w request: N must be 1 and Limit 0 unless permits are asked for", ErrInvalid)
	case r.Mode == Permits && (r.Limit < 0 || r.Limit > MaxLimit):
		return fmt.Errorf("%w limit %d: allowed are 1 to %d, and 0 for the one that is set", ErrInvalid, r.Limit, MaxLimit)
	case r.Mode == Permits && (r.N < 1 || r.N > cmp.Or(r.Limit, MaxLimit)):
		return fmt.Errorf("%w number of permits %d: allowed are 1 to the limit, %d", ErrInvalid, r.N,
			cmp.Or(r.Limit, MaxLimit))
	case r.Lease != 0 && (r.Lease < MinTTL || r.Lease > MaxTTL):
		return fmt.Errorf("%w lease %v: allowed are 0, for the session's TTL, and %v to %v", ErrInvalid, r.Lease, MinTTL,
			MaxTTL)
	case r.MinHold < 0 || r.MinHold > MaxHold:
		return fmt.Errorf("%w minimum hold %v: allowed are 0 to %v", ErrInvalid, r.MinHold, MaxHold)
	case len(r.Info) > MaxInfo:
		return fmt.Errorf("%w note and labels: %d bytes encoded; allowed are %d", ErrInvalid, len(r.Info), MaxInfo)
	}
	return r.CheckTokens(AllKinds())
}

// CheckTokens returns an ErrInvalid if a store that keeps k does not allow r.Tokens or r.CallBack, or nil.
func (r *Request) CheckTokens(k Kinds) error {
	most := MaxTokens
	if r.CallBack {
		most = MaxCallBackTokens
	}
	switch {
	case r.CallBack && (!k.CallBack || r.Mode != Exclusive):
		return fmt.Errorf("%w request that wants to be called back: only exclusive grants are, and not by every store",
			ErrInvalid)
	case r.Tokens == 0 || r.Tokens == 1:
		return nil
	case !k.Blocks:
		return fmt.Errorf("%w number of tokens %d: this store gives each grant one", ErrInvalid, r.Tokens)
	case r.Tokens < 0 || r.Tokens > most || r.Mode != Exclusive:
		return fmt.Errorf("%w number of tokens %d: allowed are 1 to %d for exclusive requests, and 1 for others",
			ErrInvalid, r.Tokens, most)
	}
	return nil
}
