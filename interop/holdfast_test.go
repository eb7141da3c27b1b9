package interop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/zklock"
)

// holdfastLibrary is holdfast's public API.
type holdfastLibrary struct {
	backend driver.Backend
	client  *holdfast.Client
}

func (h *holdfastLibrary) connect(server string, session time.Duration) error {
	b, err := zklock.New(zklock.Config{Servers: []string{server}, Root: root, Session: session})
	if err != nil {
		return err
	}
	h.backend = b
	h.client, err = holdfast.New(context.Background(), b, &holdfast.Config{TTL: session})
	return err
}

func name(path string) (string, error) {
	name, ok := strings.CutPrefix(path, root+"/")
	if !ok {
		return "", fmt.Errorf("%s is not below %s", path, root)
	}
	return name, nil
}

// method is a way to take a lock, with or without waiting.
type method func(context.Context) (*holdfast.Lease, error)

func (h *holdfastLibrary) take(a request, d time.Duration) (lease, error) {
	name, err := name(a.path)
	if err != nil {
		return nil, err
	}
	var wait, try method
	switch m, rw, s := h.client.Mutex(name), h.client.RWMutex(name), h.client.Semaphore(name, a.limit); a.kind {
	case "mutex":
		wait, try = m.Lock, m.TryLock
	case "read":
		wait, try = rw.RLock, rw.TryRLock
	case "write":
		wait, try = rw.Lock, rw.TryLock
	case "semaphore":
		wait = func(ctx context.Context) (*holdfast.Lease, error) { return s.Acquire(ctx, a.permits) }
		try = func(ctx context.Context) (*holdfast.Lease, error) { return s.TryAcquire(ctx, a.permits) }
	case "leader":
		wait = h.client.Election(name).Campaign
	case "kept": // the limit is the minimum hold in milliseconds
		wait = h.client.Mutex(name, holdfast.MinHold(time.Duration(a.limit)*time.Millisecond)).Lock
	default:
		return nil, fmt.Errorf("unknown kind %q", a.kind)
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(d, time.Minute))
	defer cancel()
	take := try
	if d > 0 {
		take = wait
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	l, err := take(ctx)
	switch {
	case errors.Is(err, holdfast.ErrHeld), errors.Is(err, context.DeadlineExceeded):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return l, nil
}

func (h *holdfastLibrary) close() error {
	return errors.Join(h.client.Close(context.Background()), h.backend.Close())
}

// more carries out the commands that only holdfast has. handoff answers with a ticket, and "adopt
// TICKET" adopts the lock. "inspect PATH" answers with the numbers of holders and waiters. "break
// PATH" ends the first grant.
func (w *worker) more(h *holdfastLibrary, command, arg string) (string, error) {
	ctx := context.Background()
	switch command {
	case "handoff":
		l := w.held.(*holdfast.Lease)
		w.held = nil
		ticket, _, err := l.HandOff()
		return "ok " + ticket, err
	case "adopt":
		l, err := h.client.Adopt(ctx, arg)
		w.held = l
		return "ok", err
	case "inspect", "break":
		name, err := name(arg)
		if err != nil {
			return "", err
		}
		r, err := h.client.Inspect(ctx, name)
		if err != nil || command == "inspect" {
			return fmt.Sprintf("ok %s %d %d", r.Kind, len(r.Holders), r.Waiting), err
		}
		if len(r.Holders) == 0 {
			return "", errors.New("the lock is free")
		}
		return "ok", h.client.Break(ctx, name, r.Holders[0].Token, "")
	}
	return "", fmt.Errorf("unknown command %q", command)
}
