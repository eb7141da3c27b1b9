package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/keeper"
	"github.com/holdfast-lock/holdfast/open"
)

// The environment variables that holdfast reads and sets.
const (
	envURL   = open.Variable    // the store; read, and passed on without its password
	envLock  = "HOLDFAST_LOCK"  // the name of the lock
	envToken = "HOLDFAST_TOKEN" // its fencing token, decimal
	envOwner = "HOLDFAST_OWNER" // its holder, as others see it: user@host:pid
	envHeld  = "HOLDFAST_HELD"  // the locks that the command runs under: see held

	envSecrets = "HOLDFAST_SECRETS" // where a holdfast inside the command finds the password
)

// ownURL returns the URL in the environment, with its password if the surrounding holdfast has it.
func ownURL() string {
	url := os.Getenv(envURL)
	return cmp.Or(offeredSecrets(url), url)
}

// held identifies one lock that a command runs under: a digest of the store and the name, and the
// token. The digest reveals nothing to readers who do not know the name.
type held struct {
	digest string
	token  uint64
}

func digest(place, name string) string {
	sum := sha256.Sum256([]byte(place + "\x00" + name))
	return hex.EncodeToString(sum[:12])
}

// inherited returns the locks that this process runs under already, outermost first. It skips
// malformed entries.
func inherited() []held {
	var list []held
	for entry := range strings.FieldsSeq(os.Getenv(envHeld)) {
		d, t, _ := strings.Cut(entry, "=")
		if token, err := strconv.ParseUint(t, 10, 64); err == nil && d != "" {
			list = append(list, held{d, token})
		}
	}
	return list
}

// waitsForItself returns an error if ancestors of this process hold the lock now, or too many
// permits of a semaphore to leave this many more. It refuses a reader below a reader too: a writer
// could wait between the two. The variable alone proves nothing, because a daemon outlives the lock
// that it was started under.
func (s *session) waitsForItself(ctx context.Context, name string, permits, limit int,
	semaphore bool) error {
	holds, r := s.heldAbove(ctx, name)
	switch {
	case holds == 0, semaphore != (r.Kind == "semaphore"): // the request itself reports another kind better
		return nil
	case semaphore && holds+permits <= cmp.Or(limit, r.Limit):
		return nil
	}
	return neverEnds(name)
}

func neverEnds(name string) error {
	return &failure{exitUsage,
		fmt.Errorf(`the surrounding holdfast command already holds %s; waiting for it would never end`, show(name))}
}

// heldAbove returns how many permits of the lock ancestors of this process hold now, and its record.
func (s *session) heldAbove(ctx context.Context, name string) (permits int, r holdfast.Record) {
	d := digest(s.place, name)
	ours := map[uint64]bool{}
	for _, h := range inherited() {
		if h.digest == d && s.place != "" {
			ours[h.token] = true
		}
	}
	if len(ours) == 0 {
		return 0, r
	}
	r, err := s.Inspect(ctx, name)
	if err != nil {
		return 0, r // the request itself reports it better
	}
	for _, h := range r.Holders {
		if ours[h.Token] && !h.Kept {
			permits += h.Permits
		}
	}
	return permits, r
}

// outerHold reports whether a command that runs under leases also runs under the hold that the
// environment names. It does not if that hold is over. A hold of the same name was handed off or
// lost, or is one of several: its answers would be taken for those about the command's own lease.
func outerHold(socket string, leases []*holdfast.Lease) bool {
	if _, err := os.Lstat(socket); err != nil {
		return false
	}
	return !slices.ContainsFunc(leases, func(l *holdfast.Lease) bool { return keeper.Of(socket, l.Name()) })
}

// environ returns the environment of a command that runs under leases; the first is that of its
// main lock.
func (s *session) environ(owner string, leases []*holdfast.Lease) []string {
	var env []string
	for _, kv := range open.Environ() {
		switch key, value, _ := strings.Cut(kv, "="); key {
		case envLock, envToken, envOwner, envHeld, envSecrets:
		case envHold:
			if outerHold(value, leases) {
				env = append(env, kv)
			}
		default:
			env = append(env, kv)
		}
	}
	main := leases[0]
	env = append(env, envLock+"="+main.Name(), envToken+"="+strconv.FormatUint(main.Token(), 10), envOwner+"="+owner)
	list := inherited()
	for _, l := range leases {
		if s.place != "" {
			list = append(list, held{digest(s.place, l.Name()), l.Token()})
		}
	}
	if len(list) == 0 {
		return env
	}
	var b strings.Builder
	for i, h := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(h.digest + "=" + strconv.FormatUint(h.token, 10))
	}
	return append(env, envHeld+"="+b.String())
}
