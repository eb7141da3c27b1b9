package otel

import (
	"fmt"
	"testing"
	"testing/synctest"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

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
