// Package prometheus exports the metrics of holdfast clients with the client library of Prometheus.
//
//	metrics := holdprom.New(nil)
//	registry.MustRegister(metrics)
//	c, err := holdfast.New(ctx, backend, &holdfast.Config{Observer: metrics.Observer()})
//
// docs/observe.md lists the metrics. Names of locks do not become labels, classes of names do: see
// observe.Class and Options.
package prometheus

import (
	"context"
	"strings"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/observe"
)

// Options adjusts New. The zero value, or nil, is ready to use.
type Options struct {
	// Class returns the class of the name of a lock, the label "class". It may be called concurrently.
	// Default: observe.Class.
	Class func(name string) string

	// MaxClasses bounds the number of classes; later ones are "other". Default: 100.
	MaxClasses int

	// Buckets of the histograms, in seconds: of waits, of leases, of what is left of leases, and of exchanges with the
	// store. Default: from 1 ms to half an hour, to a day, from 50 ms to a minute, and from 0.1 ms to 5 s.
	WaitBuckets, HoldBuckets, LeftBuckets, StoreBuckets []float64
}

// Metrics are the metrics of all clients that have its Observer. It is a prometheus.Collector, and
// safe for concurrent use.
type Metrics struct {
	classes *observe.Classes
	clients observe.Clients

	acquire, hold, margin, store          *prom.HistogramVec
	renewals, lost, breaks, leaderChanges *prom.CounterVec
}

var _ prom.Collector = (*Metrics)(nil)

// Gauges, and a counter, that are read when they are collected.
var (
	byClass = []string{"class", "backend", "mode"}

	descHeld      = desc("held", "Leases that are held now.", byClass)
	descWaiting   = desc("waiting", "Calls that wait for a lock now.", byClass)
	descHeldFor   = desc("held_oldest_seconds", "For how long the oldest lease has been held.", byClass)
	descWaitedFor = desc("wait_oldest_seconds", "For how long the oldest call has been waiting.", byClass)
	descPermits   = desc("permits", "Permits of semaphores that are held now.", []string{"class", "backend"})
	descLeader    = desc("leader", "Elections that this process leads now.", []string{"class", "backend"})
	descClients   = desc("clients", "Clients that are open.", []string{"backend"})
	descHealthy   = desc("clients_healthy", "Clients that can rely on their store, by what they know.",
		[]string{"backend"})
	descOffered    = desc("offered", "Leases that were handed off and not adopted yet.", []string{"backend"})
	descUnanswered = desc("unanswered_seconds",
		"Longest time since the store answered a client that holds or waits.", []string{"backend"})
	descDropped = desc("observer_dropped_total",
		"Calls of Loggers and Observers that were dropped, because they were too slow or panicked.", []string{"backend"})
)

func desc(name, help string, labels []string) *prom.Desc {
	return prom.NewDesc("holdfast_"+name, help, labels, nil)
}

// New returns metrics without values. Errors of opt, such as buckets that are not in order, panic, as
// in the library of Prometheus.
func New(opt *Options) *Metrics {
	if opt == nil {
		opt = &Options{}
	}
	histogram := func(name, help string, own, standard []float64, labels ...string) *prom.HistogramVec {
		if own == nil {
			own = standard
		}
		return prom.NewHistogramVec(prom.HistogramOpts{Name: "holdfast_" + name, Help: help, Buckets: own}, labels)
	}
	counter := func(name, help string, labels ...string) *prom.CounterVec {
		return prom.NewCounterVec(prom.CounterOpts{Name: "holdfast_" + name, Help: help}, labels)
	}
	return &Metrics{
		classes: observe.NewClasses(opt.Class, opt.MaxClasses),
		acquire: histogram("acquire_duration_seconds", "How long calls for a lock took, granted or not.", opt.WaitBuckets,
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
			"class", "backend", "mode", "outcome"),
		hold: histogram("hold_duration_seconds", "How long leases lasted.", opt.HoldBuckets,
			[]float64{.001, .01, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}, "class", "backend", "mode", "ended"),
		margin: histogram("lease_margin_seconds",
			"The shortest time that a lease had left when a renewal of it was answered.", opt.LeftBuckets,
			[]float64{.05, .1, .25, .5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 60}, "backend"),
		store: histogram("store_duration_seconds", "How long exchanges with the store took.", opt.StoreBuckets,
			[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
			"backend", "op", "outcome"),
		renewals: counter("renewals_total", "Renewals of all leases and places of a client.", "backend", "outcome"),
		lost:     counter("lost_total", "Leases that ended without their holder's will.", "class", "backend", "reason"),
		breaks:   counter("breaks_total", "Calls of Break by this process.", "class", "backend", "outcome"),
		leaderChanges: counter("leader_changes_total", "Elections that this process has won.",
			"class", "backend"),
	}
}

// Observer returns the Observer for holdfast.Config. Several clients may have it; observe.All adds
// others.
func (m *Metrics) Observer() *holdfast.Observer {
	return observe.All(m.clients.Observer(), &holdfast.Observer{
		WaitEnded:    m.waitEnded,
		LeaseEnded:   m.leaseEnded,
		RenewalEnded: m.renewalEnded,
		BreakEnded:   m.breakEnded,
		Exchanged:    m.exchanged,
	})
}

func (m *Metrics) waitEnded(_ context.Context, w holdfast.WaitEnd) {
	class := m.classes.Of(w.Name)
	m.acquire.WithLabelValues(class, w.Store, string(w.Mode), string(w.Outcome)).Observe(w.Waited.Seconds())
	if w.Op == observe.OpCampaign && w.Outcome == holdfast.OutcomeGranted {
		m.leaderChanges.WithLabelValues(class, w.Store).Inc()
	}
}

func (m *Metrics) leaseEnded(e holdfast.LeaseEnd) {
	class := m.classes.Of(e.Name)
	m.hold.WithLabelValues(class, e.Store, string(e.Mode), observe.Ended(&e)).Observe(e.Held.Seconds())
	if e.Lost() {
		m.lost.WithLabelValues(class, e.Store, strings.ReplaceAll(string(e.Reason), " ", "_")).Inc()
	}
}

func (m *Metrics) renewalEnded(r holdfast.RenewalEnd) {
	m.renewals.WithLabelValues(r.Store, observe.ExchangeOutcome(r.Err)).Inc()
	if r.Leases > 0 {
		m.margin.WithLabelValues(r.Store).Observe(r.Left.Seconds())
	}
}

func (m *Metrics) breakEnded(b holdfast.BreakEnd) {
	m.breaks.WithLabelValues(m.classes.Of(b.Name), b.Store, observe.ExchangeOutcome(b.Err)).Inc()
}

func (m *Metrics) exchanged(x holdfast.Exchange) {
	op := strings.ReplaceAll(x.Op, " ", "_")
	m.store.WithLabelValues(x.Store, op, observe.ExchangeOutcome(x.Err)).Observe(x.Took.Seconds())
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prom.Desc) {
	for _, d := range []*prom.Desc{descHeld, descWaiting, descHeldFor, descWaitedFor, descPermits, descLeader,
		descClients, descHealthy, descOffered, descUnanswered, descDropped} {
		ch <- d
	}
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector. It takes time in proportion to the number of leases and
// waits of all clients.
func (m *Metrics) Collect(ch chan<- prom.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
	gauge := func(d *prom.Desc, v float64, labels ...string) {
		ch <- prom.MustNewConstMetric(d, prom.GaugeValue, v, labels...)
	}
	loads, stores := m.clients.Read(m.classes)
	for i := range loads {
		l := &loads[i]
		labels := []string{l.Class, l.Store, string(l.Mode)}
		gauge(descHeld, float64(l.Held), labels...)
		gauge(descWaiting, float64(l.Waiting), labels...)
		gauge(descHeldFor, l.HeldFor.Seconds(), labels...)
		gauge(descWaitedFor, l.WaitedFor.Seconds(), labels...)
		if l.Mode == holdfast.ModePermits {
			gauge(descPermits, float64(l.Permits), l.Class, l.Store)
		}
		if l.Led {
			gauge(descLeader, float64(l.Leading), l.Class, l.Store)
		}
	}
	for i := range stores {
		s := &stores[i]
		gauge(descClients, float64(s.Clients), s.Store)
		gauge(descHealthy, float64(s.Healthy), s.Store)
		gauge(descOffered, float64(s.Offered), s.Store)
		gauge(descUnanswered, s.Unanswered.Seconds(), s.Store)
		ch <- prom.MustNewConstMetric(descDropped, prom.CounterValue, float64(s.Dropped), s.Store)
	}
}

func (m *Metrics) collectors() []prom.Collector {
	return []prom.Collector{m.acquire, m.hold, m.margin, m.store, m.renewals, m.lost, m.breaks, m.leaderChanges}
}
