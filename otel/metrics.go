package otel

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/observe"
)

// metrics are the instruments.
type metrics struct {
	t            *Telemetry
	registration metric.Registration
	err          error // the first of the meter

	acquire, hold, margin, store          metric.Float64Histogram
	renewals, lost, breaks, leaderChanges metric.Int64Counter

	held, waiting, permits, leader, clients, healthy, offered metric.Int64ObservableUpDownCounter
	heldFor, waitedFor, unanswered                            metric.Float64ObservableGauge
	dropped                                                   metric.Int64ObservableCounter
}

// keep returns x, and keeps the first error in m.
func keep[X any](m *metrics) func(x X, err error) X {
	return func(x X, err error) X {
		if m.err == nil {
			m.err = err
		}
		return x
	}
}

func (m *metrics) init(meter metric.Meter, t *Telemetry) error {
	m.t = t
	histogram := func(name, what string, bounds ...float64) metric.Float64Histogram {
		return keep[metric.Float64Histogram](m)(meter.Float64Histogram(name, metric.WithDescription(what),
			metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(bounds...)))
	}
	counter := func(name, unit, what string) metric.Int64Counter {
		return keep[metric.Int64Counter](m)(meter.Int64Counter(name, metric.WithDescription(what), metric.WithUnit(unit)))
	}
	upDown := func(name, unit, what string) metric.Int64ObservableUpDownCounter {
		return keep[metric.Int64ObservableUpDownCounter](m)(meter.Int64ObservableUpDownCounter(name,
			metric.WithDescription(what), metric.WithUnit(unit)))
	}
	seconds := func(name, what string) metric.Float64ObservableGauge {
		return keep[metric.Float64ObservableGauge](m)(meter.Float64ObservableGauge(name, metric.WithDescription(what),
			metric.WithUnit("s")))
	}
	m.acquire = histogram("holdfast.acquire.duration", "How long calls for a lock took, granted or not.",
		.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
	m.hold = histogram("holdfast.hold.duration", "How long leases lasted.",
		.001, .01, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
	m.margin = histogram("holdfast.lease.margin",
		"The shortest time that a lease had left when a renewal of it was answered.",
		.05, .1, .25, .5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60)
	m.store = histogram("holdfast.store.duration", "How long exchanges with the store took.",
		.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5)
	m.renewals = counter("holdfast.renewals", "{renewal}", "Renewals of all leases and places of a client.")
	m.lost = counter("holdfast.lost", "{lease}", "Leases that ended without their holder's will.")
	m.breaks = counter("holdfast.breaks", "{break}", "Calls of Break by this process.")
	m.leaderChanges = counter("holdfast.leader.changes", "{change}", "Elections that this process has won.")
	m.held = upDown("holdfast.held", "{lease}", "Leases that are held now.")
	m.waiting = upDown("holdfast.waiting", "{waiter}", "Calls that wait for a lock now.")
	m.permits = upDown("holdfast.permits", "{permit}", "Permits of semaphores that are held now.")
	m.leader = upDown("holdfast.leader", "{election}", "Elections that this process leads now.")
	m.clients = upDown("holdfast.clients", "{client}", "Clients that are open.")
	m.healthy = upDown("holdfast.clients.healthy", "{client}", "Clients that can rely on their store, by what they know.")
	m.offered = upDown("holdfast.offered", "{lease}", "Leases that were handed off and not adopted yet.")
	m.heldFor = seconds("holdfast.held.oldest", "For how long the oldest lease has been held.")
	m.waitedFor = seconds("holdfast.wait.oldest", "For how long the oldest call has been waiting.")
	m.unanswered = seconds("holdfast.unanswered",
		"Longest time since the store answered a client that holds or waits.")
	m.dropped = keep[metric.Int64ObservableCounter](m)(meter.Int64ObservableCounter("holdfast.observer.dropped",
		metric.WithUnit("{call}"), metric.WithDescription(
			"Calls of Loggers and Observers that were dropped, because they were too slow or panicked.")))
	if m.err != nil {
		return m.err
	}
	m.registration, m.err = meter.RegisterCallback(m.read, m.held, m.waiting, m.permits, m.leader, m.clients, m.healthy,
		m.offered, m.heldFor, m.waitedFor, m.unanswered, m.dropped)
	return m.err
}

// read is the callback for what is read when it is collected.
func (m *metrics) read(_ context.Context, o metric.Observer) error {
	loads, stores := m.t.clients.Read(m.t.classes)
	for i := range loads {
		l := &loads[i]
		class := []attribute.KeyValue{attribute.String("lock.class", l.Class), attribute.String("backend", l.Store)}
		byClass := metric.WithAttributeSet(attribute.NewSet(class...))
		byMode := metric.WithAttributeSet(attribute.NewSet(append(class, attribute.String("mode", string(l.Mode)))...))
		o.ObserveInt64(m.held, int64(l.Held), byMode)
		o.ObserveInt64(m.waiting, int64(l.Waiting), byMode)
		o.ObserveFloat64(m.heldFor, l.HeldFor.Seconds(), byMode)
		o.ObserveFloat64(m.waitedFor, l.WaitedFor.Seconds(), byMode)
		if l.Mode == holdfast.ModePermits {
			o.ObserveInt64(m.permits, int64(l.Permits), byClass)
		}
		if l.Led {
			o.ObserveInt64(m.leader, int64(l.Leading), byClass)
		}
	}
	for i := range stores {
		s := &stores[i]
		byStore := metric.WithAttributeSet(attribute.NewSet(attribute.String("backend", s.Store)))
		o.ObserveInt64(m.clients, int64(s.Clients), byStore)
		o.ObserveInt64(m.healthy, int64(s.Healthy), byStore)
		o.ObserveInt64(m.offered, int64(s.Offered), byStore)
		o.ObserveFloat64(m.unanswered, s.Unanswered.Seconds(), byStore)
		o.ObserveInt64(m.dropped, int64(s.Dropped), byStore)
	}
	return nil
}

// with returns the attributes of a measurement. The last pair is left out if its value is empty.
func with(pairs ...string) metric.MeasurementOption {
	var all []attribute.KeyValue
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all = append(all, attribute.String(pairs[i], pairs[i+1]))
		}
	}
	return metric.WithAttributeSet(attribute.NewSet(all...))
}

// waitEnded records a wait. The span of ctx becomes the exemplar.
func (m *metrics) waitEnded(ctx context.Context, class string, w *holdfast.WaitEnd) {
	m.acquire.Record(ctx, w.Waited.Seconds(), with("lock.class", class, "backend", w.Store, "mode", string(w.Mode),
		"outcome", string(w.Outcome), "error.type", errorType(w.Err)))
	if w.Op == observe.OpCampaign && w.Outcome == holdfast.OutcomeGranted {
		m.leaderChanges.Add(ctx, 1, with("lock.class", class, "backend", w.Store))
	}
}

func (m *metrics) leaseEnded(ctx context.Context, class string, e *holdfast.LeaseEnd) {
	m.hold.Record(ctx, e.Held.Seconds(), with("lock.class", class, "backend", e.Store, "mode", string(e.Mode),
		"ended", observe.Ended(e)))
	if e.Lost() {
		m.lost.Add(ctx, 1, with("lock.class", class, "backend", e.Store, "reason", word(string(e.Reason))))
	}
}

func (m *metrics) renewalEnded(ctx context.Context, r *holdfast.RenewalEnd) {
	m.renewals.Add(ctx, 1, with("backend", r.Store, "outcome", observe.ExchangeOutcome(r.Err),
		"error.type", errorType(r.Err)))
	if r.Leases > 0 {
		m.margin.Record(ctx, r.Left.Seconds(), with("backend", r.Store))
	}
}

func (m *metrics) breakEnded(b holdfast.BreakEnd) {
	m.breaks.Add(context.Background(), 1, with("lock.class", m.t.classes.Of(b.Name), "backend", b.Store,
		"outcome", observe.ExchangeOutcome(b.Err), "error.type", errorType(b.Err)))
}

func (m *metrics) exchanged(x holdfast.Exchange) {
	m.store.Record(context.Background(), x.Took.Seconds(), with("backend", x.Store, "op", word(x.Op),
		"outcome", observe.ExchangeOutcome(x.Err), "error.type", errorType(x.Err)))
}

// word returns text as one word.
func word(text string) string { return strings.ReplaceAll(text, " ", "_") }

// errorTypes are the values of the attribute "error.type". The first that matches counts.
var errorTypes = []struct {
	err  error
	name string
}{
	{context.DeadlineExceeded, "deadline_exceeded"}, {context.Canceled, "canceled"}, {holdfast.ErrClosed, "closed"},
	{holdfast.ErrHeld, "held"}, {holdfast.ErrDeadlock, "deadlock"}, {holdfast.ErrKind, "kind"},
	{holdfast.ErrInvalid, "invalid"}, {holdfast.ErrGone, "gone"}, {holdfast.ErrRefused, "refused"},
	{holdfast.ErrDamaged, "damaged"}, {holdfast.ErrUnavailable, "unavailable"}, {holdfast.ErrUncertain, "uncertain"},
	{holdfast.ErrLost, "lost"},
}

// errorType returns a word for an error of holdfast; "" for none.
func errorType(err error) string {
	if err == nil {
		return ""
	}
	for _, t := range errorTypes {
		if errors.Is(err, t.err) {
			return t.name
		}
	}
	return "_OTHER"
}
