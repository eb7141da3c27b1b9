package otel

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// Spans of leases whose ends were not reported, because the Observer was too slow, do not collect; those
// of leases that are held stay.
func TestLinksDoNotCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telemetry, err := New(&Options{TracerProvider: sdktrace.NewTracerProvider()})
		if err != nil {
			t.Fatal(err)
		}
		o := telemetry.Observer()
		o.LeaseEnded = nil
		c, err := holdfast.New(t.Context(), memlock.New(), &holdfast.Config{Observer: o})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		held, err := c.Mutex("held").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 * pruneAt {
			l, err := c.Mutex(fmt.Sprint(i)).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = l.Release()
		}
		if n := len(telemetry.grants.spans); n > pruneAt {
			t.Errorf("%d spans are kept for one lease", n)
		}
		if _, ok := telemetry.Link(held.Context(t.Context()), "held"); !ok {
			t.Error("the span of a lease that is held is gone")
		}
		_ = c.Close(t.Context())
	})
}

// Readers that share a grant link to their own calls, as long as they hold the lock.
func TestLinksOfReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracers := sdktrace.NewTracerProvider()
		telemetry, err := New(&Options{TracerProvider: tracers})
		if err != nil {
			t.Fatal(err)
		}
		c, err := holdfast.New(t.Context(), memlock.New(), &holdfast.Config{Observer: telemetry.Observer()})
		if err != nil {
			t.Fatal(err)
		}
		held, err := c.RWMutex("x").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		const readers = 3
		var ctxs []context.Context
		leases := make([]*holdfast.Lease, readers)
		for i := range readers {
			ctx, span := tracers.Tracer("test").Start(t.Context(), "caller")
			defer span.End()
			ctxs = append(ctxs, ctx)
			go func() {
				l, err := c.RWMutex("x").RLock(ctx)
				if leases[i] = l; err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		_ = held.Release()
		synctest.Wait()
		for i, l := range leases {
			link, ok := telemetry.Link(l.Context(ctxs[i]), "x")
			if want := trace.SpanContextFromContext(ctxs[i]); !ok || link.SpanContext.TraceID() != want.TraceID() {
				t.Errorf("reader %d of token %d links to %v, %t; want its own trace", i, l.Token(), link.SpanContext, ok)
			}
			_ = l.Release()
			synctest.Wait()
		}
		if n := len(telemetry.grants.spans); n > 0 {
			t.Errorf("%d grants are kept", n)
		}
		_ = c.Close(t.Context())
	})
}
