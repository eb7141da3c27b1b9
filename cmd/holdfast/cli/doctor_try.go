package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/open"
)

const tryCode = "lock.try"

// untried is the finding of a user who lacks the rights of tryLock, such as one who only looks.
func untried(err error) driver.Finding {
	return driver.Finding{Code: tryCode, Severity: driver.Unclear,
		Found: "no lock was tried, because this user may not lock: " + oneLine(err.Error()),
		Why:   "whether a lock can be taken and handed over here is not known; a user who takes locks needs this right",
		Do:    "examine the store as a user who takes locks"}
}

// tryLock takes a lock, has another client wait for it, hands it over and releases it.
func (a *app) tryLock(ctx context.Context, st *open.Store) (f driver.Finding, err error) {
	name := "holdfast-doctor/" + strings.ToLower(rand.Text()[:12])
	var clients [2]*holdfast.Client
	for i := range clients {
		c, err := holdfast.New(ctx, st, &holdfast.Config{TTL: a.ttl})
		if err != nil {
			return f, err
		}
		clients[i] = c
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
			defer cancel()
			if cerr := c.Close(ctx); cerr != nil && err == nil {
				err = cerr
			}
		}()
	}
	first, err := clients[0].Mutex(name).TryLock(ctx)
	if err != nil {
		return f, err
	}
	type taken struct {
		lease *holdfast.Lease
		at    time.Time
		err   error
	}
	next := make(chan taken, 1)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		l, err := clients[1].Mutex(name).Lock(waiting)
		next <- taken{l, time.Now(), err}
	}()
	queued, err := hasWaiter(ctx, clients[0], name)
	began := time.Now()
	err = errors.Join(err, first.Release())
	if err != nil {
		stop()
		if t := <-next; t.lease != nil {
			err = errors.Join(err, t.lease.Release())
		}
		return f, err
	}
	t := <-next
	if t.err != nil {
		return f, t.err
	}
	if err := t.lease.Release(); err != nil {
		return f, err
	}
	took := t.at.Sub(began).Round(10 * time.Microsecond)
	switch {
	case t.lease.Token() <= first.Token():
		return driver.Finding{Code: tryCode, Severity: driver.Endangers,
			Found: fmt.Sprintf("fencing token %d was given out after %d", t.lease.Token(), first.Token()),
			Why:   "a resource that checks tokens takes the newer holder for the older one",
			Do:    "report this as a bug of the store's driver"}, nil
	case queued && took > a.ttl/4:
		return driver.Finding{Code: tryCode, Severity: driver.Slows,
			Found: fmt.Sprintf("a lock was taken and handed over, which took %v", took),
			Why:   "no push reached the waiter, which noticed the grant when it renewed its place, or the store is slow",
			Do:    "see the other findings; this machine may be busy too: try again"}, nil
	}
	return driver.Finding{Code: tryCode, Found: fmt.Sprintf(
		"a lock was taken, handed over to another client in %v, and released; the second token was larger", took)}, nil
}

// hasWaiter waits until name has a waiter. It returns false if none comes within a second.
func hasWaiter(ctx context.Context, c *holdfast.Client, name string) (bool, error) {
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		r, err := c.Inspect(ctx, name)
		if err != nil || r.Waiting > 0 {
			return err == nil, err
		}
		select {
		case <-time.After(5 * time.Millisecond): // no store sends a push when a queue grows
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return false, nil
}
