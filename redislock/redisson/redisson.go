package redisson

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

// Config configures the format. The zero value, or nil, works.
type Config struct {
	// An empty Prefix means "hf:r:". With that of package redislock, clients of the two packages would
	// end each other's grants.
	redislock.Config

	// Fenced makes a Mutex an RFencedLock. Its token then counts for Go and Java. Without it a Mutex
	// is an RLock, and raises the token of an RFencedLock that has the name.
	Fenced bool

	// Fair makes a Mutex an RFairLock: all waiters, in Go and Java, are served in order of arrival. A
	// waiter in Go that dies is waited for a second or two. A client in Java that dies may hold the others
	// up for minutes, as it does in Redisson (fairLockWaitTimeout). The clocks of the clients in Java must
	// not be ahead of the server's by more than a second, or Go's waiters lose their places. A fair lock
	// has no fencing token in Redisson, so Fenced is not allowed with it.
	Fair bool

	// PlainSemaphores makes a Semaphore an RSemaphore, else it is an RPermitExpirableSemaphore. The two
	// do not exclude each other.
	PlainSemaphores bool
}

//go:embed *.lua
var files embed.FS

// parts are the files that make the functions of the format, in their order.
var parts = []string{"format", "messages", "fair", "turns", "others", "changes"}

// text returns the text of files, one after the other.
func text(names ...string) string {
	var all strings.Builder
	for _, name := range names {
		b, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic(err) // cannot happen: the file is embedded
		}
		all.WriteString("\n")
		all.Write(b)
	}
	return all.String()
}

// A waiter in the queue of an RFairLock is waited for as long as signOfLife, and gives a sign of life
// every beat. So the session may be late by a second.
const (
	signOfLife = 1800 * time.Millisecond
	beat       = 600 * time.Millisecond
)

// prefix begins the keys of our own records.
const prefix = "hf:r:"

// New returns the lock table that conn leads to, shared with Redisson. It sends nothing. If cfg is
// invalid, every method returns ErrInvalid. The Backend owns conn: Close closes it.
func New(conn redislock.Conn, cfg *Config) *redislock.Backend {
	if cfg == nil {
		cfg = new(Config)
	}
	constants := fmt.Sprintf("local FENCED, FAIR, PLAIN, WAIT = %t, %t, %t, %d\n", cfg.Fenced, cfg.Fair,
		cfg.PlainSemaphores, signOfLife.Milliseconds())
	table := cfg.Config
	if table.Prefix == "" {
		table.Prefix = prefix
	}
	f := &redislock.Format{
		Name: "redisson",
		Lua:  constants + text(parts...),
		Scan: text("scan"),
		Tag:  tag,

		MostPermits: mostPermits(cfg),
	}
	f.Check, f.Channel = Check, channel
	if cfg.Fair {
		f.Channel, f.Beat = fairChannel, beat
	}
	if cfg.Fair && cfg.Fenced {
		f.Check = func(string, driver.Kind, bool) error {
			return fmt.Errorf("%w config: a fair lock of Redisson has no fencing token: Fair and Fenced exclude each other",
				driver.ErrInvalid)
		}
	}
	return redislock.NewFormat(conn, &table, f)
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
func channel(name, _ string, mode driver.Mode, rw bool) string {
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

// fairChannel is channel, if a mutex is an RFairLock: each waiter has a channel of its own.
func fairChannel(name, id string, mode driver.Mode, rw bool) string {
	if mode == driver.Exclusive && !rw {
		return prefixed("redisson_lock__channel", name) + ":" + holder(id)
	}
	return channel(name, id, mode, rw)
}

// holder returns how Redisson knows a request; see format.lua.
func holder(id string) string {
	sum := sha1.Sum([]byte(id)) // a name, not for security
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:] + ":1"
}
