package otel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/drivertest"
	"github.com/holdfast-lock/holdfast/memlock"
	holdotel "github.com/holdfast-lock/holdfast/otel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

// sdk has the exporters of a test.
type sdk struct {
	*testing.T
	spans     *tracetest.SpanRecorder
	tracer    trace.Tracer
	reader    *metric.ManualReader
	telemetry *holdotel.Telemetry
}

func newSDK(t *testing.T, class func(string) string, most int) *sdk {
	s := &sdk{T: t, spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))
	meters := metric.NewMeterProvider(metric.WithReader(s.reader))
	s.tracer = tracers.Tracer("test")
	var err error
	s.telemetry, err = holdotel.New(&holdotel.Options{TracerProvider: tracers, MeterProvider: meters, Class: class,
		MaxClasses: most})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.telemetry.Close(); err != nil {
			t.Error(err)
		}
		_ = tracers.Shutdown(context.Background())
		_ = meters.Shutdown(context.Background())
	})
	return s
}

func (s *sdk) client(store driver.Backend) *holdfast.Client {
	return open(s.T, store, s.telemetry.Observer())
}

func open(t *testing.T, store driver.Backend, o *holdfast.Observer) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(t.Context(), store, &holdfast.Config{TTL: ttl, Program: "p", Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

func lock(t *testing.T, c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Lease {
	t.Helper()
	l, err := c.Mutex(name, opts...).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// named returns the only span of that name.
func (s *sdk) named(name string) sdktrace.ReadOnlySpan {
	s.Helper()
	synctest.Wait()
	var found []sdktrace.ReadOnlySpan
	for _, span := range s.spans.Ended() {
		if span.Name() == name {
			found = append(found, span)
		}
	}
	if len(found) != 1 {
		s.Fatalf("%d spans %q", len(found), name)
	}
	return found[0]
}

func attributes(all []attribute.KeyValue) string {
	set := attribute.NewSet(all...)
	return set.Encoded(attribute.DefaultEncoder())
}

// samples returns a line for each number, or count of a histogram, of a metric.
func (s *sdk) samples(names ...string) string {
	s.Helper()
	synctest.Wait()
	var data metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &data); err != nil {
		s.Fatal(err)
	}
	var lines []string
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			if !slices.Contains(names, m.Name) {
				continue
			}
			add := func(set attribute.Set, v any) {
				lines = append(lines, fmt.Sprintf("%s{%s} %v %s", m.Name, set.Encoded(attribute.DefaultEncoder()), v, m.Unit))
			}
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, p.Count)
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, p.Value)
				}
			default:
				s.Errorf("%s: %T", m.Name, d)
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// A wait is a span with its true times, a child of the caller's, and linked to the blocker's span in
// another process. The work can link to it.
func TestSpanOfAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSDK(t, nil, 0), newSDK(t, nil, 0) // two processes
		store := memlock.New()
		ca, cb := a.client(store), b.client(store)

		ctx, blocking := a.tracer.Start(t.Context(), "blocking")
		held := lock(t, ca, "order/42", holdotel.TraceLabel(ctx))
		time.AfterFunc(3*time.Second, func() { _ = held.Release() })
		began := time.Now()
		ctx, caller := b.tracer.Start(t.Context(), "caller")
		token := uint64(0)
		err := cb.Mutex("order/42").Do(ctx, func(ctx context.Context) error {
			token = holdfast.Token(ctx)
			link, ok := b.telemetry.Link(ctx, "order/42")
			if !ok {
				t.Error("no link to the call that took the lock")
			}
			_, span := b.tracer.Start(context.Background(), "work", trace.WithLinks(link))
			time.Sleep(time.Second)
			span.End()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		caller.End()
		blocking.End()
		span := b.named("holdfast acquire")
		if span.Parent().SpanID() != caller.SpanContext().SpanID() || !span.StartTime().Equal(began) ||
			span.EndTime().Sub(began) != 3*time.Second {
			t.Errorf("the span is from %v to %v, below %v", span.StartTime(), span.EndTime(), span.Parent())
		}
		want := fmt.Sprintf("backend=memory,lock.class=order/*,lock.holder=%s,lock.name=order/42,lock.permits=1,lock.token=%d,"+
			"mode=exclusive,op=lock,outcome=granted", "…", token)
		if got := hideHolder(attributes(span.Attributes())); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if e := span.Events(); len(e) != 2 || e[0].Name != "queued" || !e[0].Time.Equal(began) || e[1].Name != "granted" ||
			!e[1].Time.Equal(span.EndTime()) || attributes(e[0].Attributes) != "lock.ahead=0" {
			t.Errorf("events %+v", e)
		}
		if l := span.Links(); len(l) != 1 || l[0].SpanContext.SpanID() != blocking.SpanContext().SpanID() {
			t.Errorf("links %+v; want one to the holder's span", l)
		}
		if l := b.named("work").Links(); len(l) != 1 || l[0].SpanContext.SpanID() != span.SpanContext().SpanID() {
			t.Errorf("links of the work: %+v", l)
		}
		if span.Status().Code != codes.Unset {
			t.Errorf("status %+v", span.Status())
		}
		if _, ok := b.telemetry.Link(ctx, "order/42"); ok {
			t.Error("a link to a lease that has ended")
		}
	})
}

func hideHolder(text string) string {
	before, after, _ := strings.Cut(text, "lock.holder=")
	_, after, _ = strings.Cut(after, ",lock.name")
	return before + "lock.holder=…,lock.name" + after
}

// A failure is a span with an error: a wait that timed out, a renewal, and a lease that was lost,
// which links to the call that took it.
func TestSpansOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSDK(t, nil, 0)
		store := memlock.New()
		conn := drivertest.Faulty(store)
		c, other := s.client(conn), open(t, store, nil)
		l := lock(t, c, "x")
		acquired := s.named("holdfast acquire")
		s.spans.Reset()
		heal := conn.Cut()
		<-l.Done()
		heal()
		lost := s.named("holdfast lost")
		if links := lost.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != acquired.SpanContext().SpanID() ||
			lost.SpanContext().TraceID() != acquired.SpanContext().TraceID() {
			t.Errorf("the span of the loss is not linked: %+v", links)
		}
		if d := lost.EndTime().Sub(lost.StartTime()); d != 9*time.Second || lost.Status().Code != codes.Error {
			t.Errorf("the lease was lost after %v: %+v", d, lost.Status())
		}
		if got := attributes(lost.Attributes()); !strings.Contains(got, "error.type=uncertain") ||
			!strings.Contains(got, "reason=unreachable") {
			t.Errorf("the loss: %s", got)
		}
		if r := s.named("holdfast renew"); r.Status().Code != codes.Error {
			t.Errorf("the renewal: %+v", r.Status())
		}
		_ = l.Release()
		time.Sleep(2 * ttl)
		s.spans.Reset()
		lock(t, other, "x")
		_, err := c.Mutex("x", holdfast.WaitAtMost(time.Second)).Lock(t.Context())
		if !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
		if w := s.named("holdfast acquire"); w.Status().Code != codes.Error ||
			w.EndTime().Sub(w.StartTime()) != time.Second || !strings.Contains(attributes(w.Attributes()), "outcome=timeout") {
			t.Errorf("the wait: %+v, %s", w.Status(), attributes(w.Attributes()))
		}
	})
}

// A sampler may leave out all spans: nothing breaks, and links are none.
func TestWithoutSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telemetry, err := holdotel.New(nil) // the global providers do nothing
		if err != nil {
			t.Fatal(err)
		}
		c := open(t, memlock.New(), telemetry.Observer())
		l := lock(t, c, "x", holdotel.TraceLabel(t.Context()), holdfast.Note("n"))
		if _, ok := telemetry.Link(l.Context(t.Context()), "x"); ok {
			t.Error("a link to no span")
		}
		_ = l.Release()
		if err := telemetry.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestTraceLabelKeepsOtherOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSDK(t, nil, 0)
		c := open(t, memlock.New(), nil)
		ctx, span := s.tracer.Start(t.Context(), "a")
		defer span.End()
		lock(t, c, "x", holdfast.Note("a note"), holdotel.TraceLabel(ctx), holdfast.Label("k", "v"))
		lock(t, c, "y", holdfast.Note("a note"), holdotel.TraceLabel(t.Context()))
		for name, labels := range map[string]int{"x": 2, "y": 0} {
			r, err := c.Inspect(t.Context(), name)
			if err != nil || r.Holders[0].Note != "a note" || len(r.Holders[0].Labels) != labels {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
}
