package redisson

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/redislock/redisson"
	"github.com/holdfast-lock/holdfast/redislock/rueidisconn"
)

// library is holdfast's public API. Redisson names the kind of a lock with each use, holdfast's
// format in its settings. So a library has a client for each of the settings.
type library struct {
	url string
	ttl time.Duration

	mu      sync.Mutex
	clients map[string]*holdfast.Client // by the kind that needs settings of its own
}

// held is a lock, several, or permits.
type held interface {
	Release() error
	Err() error
}

var libraries struct {
	sync.Mutex
	all map[string]*library
}

// libraryOf returns the clients that all actors with these settings share.
func libraryOf(url string, ttl time.Duration) *library {
	libraries.Lock()
	defer libraries.Unlock()
	if libraries.all == nil {
		libraries.all = map[string]*library{}
	}
	key := fmt.Sprint(url, ttl)
	if libraries.all[key] == nil {
		libraries.all[key] = &library{url: url, ttl: ttl, clients: map[string]*holdfast.Client{}}
	}
	return libraries.all[key]
}

// client returns the client for a kind of lock.
func (h *library) client(kind string) (*holdfast.Client, error) {
	var cfg redisson.Config
	switch kind {
	case "fenced":
		cfg.Fenced = true
	case "fair":
		cfg.Fair = true
	case "semaphore":
		cfg.PlainSemaphores = true
	default:
		kind = ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.clients[kind]; c != nil {
		return c, nil
	}
	conn, err := rueidisconn.Dial(h.url)
	if err != nil {
		return nil, err
	}
	c, err := holdfast.New(context.Background(), redisson.New(conn, &cfg), &holdfast.Config{TTL: h.ttl})
	if err == nil {
		h.clients[kind] = c
	}
	return c, err
}

// take returns nil if the lock is not free in time.
func (h *library) take(kind, name string, d time.Duration, n int) (held, error) {
	c, err := h.client(kind)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(d, time.Minute))
	defer cancel()
	if d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	l, err := take(ctx, c, kind, name, d > 0, n)
	switch {
	case errors.Is(err, holdfast.ErrHeld), errors.Is(err, context.DeadlineExceeded):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return l, nil
}

func take(ctx context.Context, c *holdfast.Client, kind, name string, wait bool, n int) (held, error) {
	switch kind {
	case "mutex", "fair", "fenced":
		if m := c.Mutex(name); wait {
			return m.Lock(ctx)
		} else {
			return m.TryLock(ctx)
		}
	case "read":
		if m := c.RWMutex(name); wait {
			return m.RLock(ctx)
		} else {
			return m.TryRLock(ctx)
		}
	case "write":
		if m := c.RWMutex(name); wait {
			return m.Lock(ctx)
		} else {
			return m.TryLock(ctx)
		}
	case "semaphore", "permit":
		if s := c.Semaphore(name, holdfast.LimitAsSet); wait {
			return s.Acquire(ctx, n)
		} else {
			return s.TryAcquire(ctx, n)
		}
	case "multi":
		var parts []holdfast.Part
		for name := range strings.SplitSeq(name, ",") {
			parts = append(parts, c.Mutex(name))
		}
		if wait {
			return holdfast.LockAll(ctx, parts...)
		}
		return holdfast.TryLockAll(ctx, parts...)
	}
	return nil, fmt.Errorf("unknown kind %q", kind)
}

// token returns the fencing token of a single lock.
func token(l held) string {
	if one, ok := l.(*holdfast.Lease); ok {
		return fmt.Sprint(one.Token())
	}
	return ""
}

// command carries out the commands that no lock is needed for, as the Java program's Actor does.
func (h *library) command(ctx context.Context, command string, word func(int) string,
	number func(i, otherwise int) int) (string, error) {
	kind, name := word(1), word(2)
	if !slices.Contains([]string{"force", "locked", "permits", "setpermits"}, command) {
		kind, name = "", word(1)
	}
	c, err := h.client(kind)
	if err != nil {
		return "", err
	}
	switch command {
	case "force":
		r, err := c.Inspect(ctx, name)
		for _, holder := range r.Holders {
			err = errors.Join(err, c.Break(ctx, name, holder.Token, ""))
		}
		return fmt.Sprint("ok ", len(r.Holders) > 0), err
	case "locked":
		r, err := c.Inspect(ctx, name)
		return fmt.Sprint("ok ", len(r.Holders) > 0), err
	case "setpermits":
		// The first request sets the limit.
		l, err := c.Semaphore(name, number(3, 1)).TryAcquire(ctx, 1)
		if err != nil {
			return "", err
		}
		return "ok true", l.Release()
	case "permits":
		r, err := c.Inspect(ctx, name)
		free := r.Limit
		for _, holder := range r.Holders {
			free -= holder.Permits
		}
		return fmt.Sprint("ok ", free), err
	case "setcount":
		created, err := c.Latch(name).Set(ctx, int64(number(2, 1)))
		return fmt.Sprint("ok ", created), err
	case "count":
		r, err := c.Inspect(ctx, name)
		return fmt.Sprint("ok ", r.Count), err
	case "down":
		_, err := c.Latch(name).CountDown(ctx, "")
		return "ok", err
	case "drop":
		return "ok true", c.Latch(name).Remove(ctx)
	case "await":
		ctx, cancel := context.WithTimeout(ctx, time.Duration(number(2, 0))*time.Millisecond)
		defer cancel()
		if err := c.Latch(name).Wait(ctx); errors.Is(err, context.DeadlineExceeded) {
			return "busy", nil
		} else if err != nil && !errors.Is(err, holdfast.ErrGone) { // Redisson removes a latch at zero
			return "", err
		}
		return "ok", nil
	}
	return "", fmt.Errorf("unknown command %q", command)
}
