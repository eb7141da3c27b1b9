package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// sharingScenarios measure what it costs that goroutines of one client read under one grant. No peer has a
// read lock, so they compare holdfast with itself: with Fair, each reader has a grant of its own.
func sharingScenarios() []scenario {
	const goroutines = 128
	s := scenario{
		name: fmt.Sprintf("readers/%d-goroutines", goroutines), store: "redis",
		title: fmt.Sprintf("One name, %d goroutines of one client that read, empty critical section.", goroutines),
		columns: []column{
			num("persec", "acquisitions/s"), num("sent", "commands"), dur("cpu", "client CPU"), dur("srvcpu", "server CPU"),
			num("allocs", "allocations"),
		},
	}
	for _, l := range []library{holdfastRueidis, holdfastGoredis} {
		with := func(name string, opts ...holdfast.Option) {
			s.subjects = append(s.subjects, subject{name, func(ctx context.Context, b *testbed) (metrics, error) {
				return runSharing(ctx, b, l, goroutines, opts)
			}})
		}
		with(l.name)
		with(l.name+"-fair", holdfast.Fair())
	}
	return []scenario{s}
}

// runSharing lets goroutines of one client take and release the read lock of one name.
func runSharing(ctx context.Context, b *testbed, l library, goroutines int, opts []holdfast.Option) (
	m metrics, err error) {
	w := new(wire)
	c, err := l.open(ctx, b.site(0, w))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	lock := c.(*holdfastClient).c.RWMutex("one", opts...)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var reads atomic.Int64
	var over atomic.Bool
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for !over.Load() {
				if err := lock.RDo(ctx, func(context.Context) error { reads.Add(1); return nil }); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	pause(ctx, b.duration/5)
	before, berr := b.read(ctx, w)
	first := reads.Load()
	pause(ctx, b.duration)
	for reads.Load() == first && ctx.Err() == nil {
		pause(ctx, time.Millisecond) // the machine has stood still: nothing has been measured
	}
	n := float64(reads.Load() - first)
	after, aerr := b.read(ctx, w)
	over.Store(true)
	group.Wait()
	if err := firstError(context.Cause(ctx), berr, aerr); err != nil {
		return nil, err
	}
	m = metrics{}
	before.until(after, n, m)
	return m, nil
}
