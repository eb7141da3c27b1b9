package redisson

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// Config configures the format. The zero value, or nil, works.
type Config struct {
	redislock.Config

	// Fenced makes a Mutex an RFencedLock. Its token then counts for Go and Java. Without it a Mutex
	// is an RLock, and raises the token of an RFencedLock that has the name.
	Fenced bool

	// PlainSemaphores makes a Semaphore an RSemaphore, else it is an RPermitExpirableSemaphore. The two
	// do not exclude each other.
	PlainSemaphores bool
}

//go:embed format.lua
var format string

//go:embed scan.lua
var scan string

// New returns the lock table that conn leads to, shared with Redisson. It sends nothing. If cfg is
// invalid, every method returns ErrInvalid. The Backend owns conn: Close closes it.
func New(conn redislock.Conn, cfg *Config) *redislock.Backend {
	if cfg == nil {
		cfg = new(Config)
	}
	return redislock.NewFormat(conn, &cfg.Config, &redislock.Format{
		Name:  "redisson",
		Lua:   fmt.Sprintf("local FENCED, PLAIN = %t, %t\n%s", cfg.Fenced, cfg.PlainSemaphores, format),
		Scan:  scan,
		Check: Check,

		MostPermits: mostPermits(cfg),

		Tag:     tag,
		Channel: channel,
	})
}

// mostPermits bounds the permits of one request: each is an element of a sorted set.
func mostPermits(cfg *Config) int {
	if cfg.PlainSemaphores {
		return 0
	}
	return 1000
}

// Check returns an ErrInvalid if Redisson cannot use name, or makes it of another name: the queue of a
// fair lock, for instance, has a key that begins with redisson_lock_queue. In a Cluster Redisson's keys
// of a name must be in one slot. They are not if a brace has no partner, if there is nothing between
// two braces, or, for a latch, if there is any brace.
func Check(name string, kind driver.Kind, cluster bool) error {
	if companion(name) {
		return fmt.Errorf("%w name %q: it is a key that Redisson makes of another name", driver.ErrInvalid, name)
	}
	open := strings.IndexByte(name, '{')
	switch {
	case !cluster || !strings.ContainsAny(name, "{}"):
		return nil
	case kind == driver.Latch:
		return fmt.Errorf("%w name %q: in a Cluster Redisson cannot use braces in the name of a latch", driver.ErrInvalid,
			name)
	case open < 0 || strings.IndexByte(name[open:], '}') < 2:
		return fmt.Errorf("%w name %q: in a Cluster Redisson needs text between { and }, or no braces", driver.ErrInvalid,
			name)
	}
	return nil
}

// companion reports whether Redisson makes name of another name.
func companion(name string) bool {
	for _, prefix := range []string{"lock_token:", "unlock_latch:", "lock_queue:", "lock_timeout:"} {
		if strings.HasPrefix(name, "redisson_"+prefix) {
			return true
		}
	}
	return strings.Contains(name, "{") &&
		(strings.HasSuffix(name, ":timeout") || strings.Contains(name, ":rwlock_timeout:"))
}

// tag returns the hash tag of name.
func tag(name string) string {
	if open := strings.IndexByte(name, '{'); open >= 0 {
		if length := strings.IndexByte(name[open:], '}'); length > 1 {
			return name[open+1 : open+length]
		}
	}
	return name
}

// prefixed makes the name of a key or channel as Redisson does.
func prefixed(prefix, name string) string {
	if strings.ContainsRune(name, '{') {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// channel returns where the end of a lock is announced.
func channel(name string, mode driver.Mode, rw bool) string {
	switch {
	case mode == 0:
		return "redisson_countdownlatch__channel__{" + name + "}"
	case mode == driver.Permits:
		return prefixed("redisson_sc", name)
	case mode == driver.Shared || rw:
		return prefixed("redisson_rwlock", name)
	}
	return prefixed("redisson_lock__channel", name)
}
