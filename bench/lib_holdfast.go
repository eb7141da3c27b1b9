package main

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

// openHoldfast returns a client of a backend, which its close closes.
func openHoldfast(ctx context.Context, backend driver.Backend, at site, opts ...holdfast.Option) (client, error) {
	c, err := holdfast.New(ctx, backend, config(at))
	if err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	return &holdfastClient{c: c, backend: backend, opts: opts}, nil
}

// config returns the settings of a client.
func config(at site) *holdfast.Config {
	cfg := &holdfast.Config{TTL: at.ttl}
	if at.fair {
		cfg.Passes = -1
	}
	return cfg
}

type holdfastClient struct {
	c       *holdfast.Client
	backend driver.Backend
	opts    []holdfast.Option // of contenders

	mu   sync.Mutex
	held []*holdfast.Lease
}

func (c *holdfastClient) contender(name string) contender {
	return &holdfastContender{m: c.c.Mutex(name, c.opts...)}
}

func (c *holdfastClient) hold(ctx context.Context, name string) error {
	l, err := c.c.Mutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.held = append(c.held, l)
	c.mu.Unlock()
	return nil
}

// close reports a lease that was lost before its release.
func (c *holdfastClient) close() error {
	var errs []error
	for _, l := range c.held {
		if err := l.Err(); err != nil {
			errs = append(errs, err)
			break
		}
	}
	errs = append(errs, c.c.Close(context.Background()), c.backend.Close())
	return errors.Join(errs...)
}

type holdfastContender struct {
	m *holdfast.Mutex
	l *holdfast.Lease
}

func (k *holdfastContender) lock(ctx context.Context) (err error) {
	k.l, err = k.m.Lock(ctx)
	return err
}

func (k *holdfastContender) unlock() error { return k.l.Release() }
