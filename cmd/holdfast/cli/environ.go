package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/open"
)

// The environment variables that holdfast reads and sets.
const (
	envURL   = "HOLDFAST_URL"   // the store; read, and passed on without its password
	envLock  = "HOLDFAST_LOCK"  // the name of the lock
	envToken = "HOLDFAST_TOKEN" // its fencing token, decimal
	envOwner = "HOLDFAST_OWNER" // who holds it, as others see: user@host:pid
	envHeld  = "HOLDFAST_HELD"  // what the command runs under: see held
)

// held names one lock that a command runs under: a digest of the store and the name, and
// the token. It says nothing to who does not know the name.
type held struct {
	digest string
	token  uint64
}

func digest(place, name string) string {
	sum := sha256.Sum256([]byte(place + "\x00" + name))
	return hex.EncodeToString(sum[:12])
}

// inherited are the locks that this process runs under already, outermost first. What is
// not well formed is left out.
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

// waitsForItself reports whether a process that this one was started by holds the lock
// now. The variable alone does not prove it: a daemon outlives the lock that it was
// started under.
func (s *session) waitsForItself(ctx context.Context, name string) bool {
	d := digest(s.place, name)
	for _, h := range inherited() {
		if s.place == "" || h.digest != d {
			continue
		}
		r, err := s.Inspect(ctx, name)
		if err == nil && slices.ContainsFunc(r.Holders, func(o holdfast.Holder) bool { return o.Token == h.token && !o.Kept }) {
			return true
		}
	}
	return false
}

// environ is the environment of a command that runs under the lock.
func (s *session) environ(name, owner string, token uint64) []string {
	var env []string
	for _, kv := range os.Environ() {
		switch key, value, _ := strings.Cut(kv, "="); key {
		case envLock, envToken, envOwner, envHeld:
		case envURL:
			// A command that uses holdfast itself must not quietly lock in another
			// place; without the password it is refused, and says so.
			if clean, ok := open.WithoutPassword(value); ok {
				env = append(env, envURL+"="+clean)
			}
		default:
			env = append(env, kv)
		}
	}
	env = append(env, envLock+"="+name, envToken+"="+strconv.FormatUint(token, 10), envOwner+"="+owner)
	list := inherited()
	if s.place != "" {
		list = append(list, held{digest(s.place, name), token})
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
