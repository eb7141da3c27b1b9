package otel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-lock/holdfast"
)

// labelTrace is the label that names the holder's span to waiters, in the form of W3C Trace Context.
const labelTrace = "traceparent"

// TraceLabel is an Option that stores the span of ctx in the record of the lock, as the label
// "traceparent". The span of a call that waits behind the holder then links to it, also from another
// process. Like all labels, everyone who may list the locks sees it. It does nothing if ctx has no
// span.
//
//	lease, err := c.Mutex("order/42", holdotel.TraceLabel(ctx)).Lock(ctx)
func TraceLabel(ctx context.Context) holdfast.Option {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if text := carrier[labelTrace]; text != "" {
		return holdfast.Label(labelTrace, text)
	}
	return holdfast.Candidate("", "") // changes nothing
}

// waitEnded makes the span of a call for a lock, with its true times.
func (t *Telemetry) waitEnded(ctx context.Context, w holdfast.WaitEnd) {
	class := t.classes.Of(w.Name)
	opts := []trace.SpanStartOption{trace.WithTimestamp(w.Began), trace.WithAttributes(
		attribute.String("lock.name", w.Name), attribute.String("lock.class", class), attribute.String("backend", w.Store),
		attribute.String("mode", string(w.Mode)), attribute.Int("lock.permits", w.Permits), attribute.String("op", w.Op))}
	if link, ok := blocker(w.Holder); ok {
		opts = append(opts, trace.WithLinks(link))
	}
	spanCtx, span := t.tracer.Start(ctx, "holdfast acquire", opts...)
	end := w.Began.Add(w.Waited)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("outcome", string(w.Outcome)))
		if !w.Queued.IsZero() {
			span.AddEvent("queued", trace.WithTimestamp(w.Queued), trace.WithAttributes(attribute.Int("lock.ahead", w.Ahead)))
		}
		if w.Holder != nil {
			span.SetAttributes(attribute.String("lock.holder", w.Holder.String()))
		}
		switch w.Outcome {
		case holdfast.OutcomeGranted:
			span.SetAttributes(attribute.Int64("lock.token", int64(w.Token)))
			span.AddEvent("granted", trace.WithTimestamp(end))
		case holdfast.OutcomeTimeout, holdfast.OutcomeRefused, holdfast.OutcomeFailed:
			fail(span, w.Err, end)
		}
	}
	t.metrics.waitEnded(spanCtx, class, &w)
	span.End(trace.WithTimestamp(end))
	if c := span.SpanContext(); w.Outcome == holdfast.OutcomeGranted && c.IsValid() {
		t.grants.add(&w, acquirer{c, trace.SpanContextFromContext(ctx)}, &t.clients)
	}
}

// blocker returns a link to the span that a holder has named with TraceLabel.
func blocker(h *holdfast.Holder) (trace.Link, bool) {
	if h == nil || h.Labels[labelTrace] == "" {
		return trace.Link{}, false
	}
	carrier := propagation.MapCarrier{labelTrace: h.Labels[labelTrace]}
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier)
	c := trace.SpanContextFromContext(ctx)
	return trace.Link{SpanContext: c, Attributes: []attribute.KeyValue{attribute.String("link", "holder")}}, c.IsValid()
}

func fail(span trace.Span, err error, when time.Time) {
	span.SetAttributes(attribute.String("error.type", errorType(err)))
	span.RecordError(err, trace.WithTimestamp(when))
	span.SetStatus(codes.Error, err.Error())
}

// leaseEnded makes a span for a lease that was lost. Others have none: the caller's spans show them.
func (t *Telemetry) leaseEnded(e holdfast.LeaseEnd) {
	class, ctx := t.classes.Of(e.Name), context.Background()
	acquired := t.grants.remove(&e)
	if !e.Lost() {
		t.metrics.leaseEnded(ctx, class, &e)
		return
	}
	now := time.Now()
	opts := []trace.SpanStartOption{trace.WithTimestamp(now.Add(-e.Held)), trace.WithAttributes(
		attribute.String("lock.name", e.Name), attribute.String("lock.class", class), attribute.String("backend", e.Store),
		attribute.String("mode", string(e.Mode)), attribute.Int64("lock.token", int64(e.Token)),
		attribute.String("reason", word(string(e.Reason))))}
	if acquired.IsValid() { // the same trace, so that it is kept or left out with the rest
		ctx = trace.ContextWithSpanContext(ctx, acquired)
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: acquired}))
	}
	ctx, span := t.tracer.Start(ctx, "holdfast lost", opts...)
	if span.IsRecording() {
		fail(span, e.Err, now)
	}
	t.metrics.leaseEnded(ctx, class, &e)
	span.End(trace.WithTimestamp(now))
}

// renewalEnded makes a span for a renewal that failed.
func (t *Telemetry) renewalEnded(r holdfast.RenewalEnd) {
	ctx := context.Background()
	if r.Err != nil {
		now := time.Now()
		var span trace.Span
		ctx, span = t.tracer.Start(ctx, "holdfast renew", trace.WithTimestamp(now.Add(-r.Took)), trace.WithAttributes(
			attribute.String("backend", r.Store), attribute.Int("number", r.Number)))
		if span.IsRecording() {
			fail(span, r.Err, now)
		}
		defer span.End(trace.WithTimestamp(now))
	}
	t.metrics.renewalEnded(ctx, &r)
}
