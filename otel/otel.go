// Package otel exports spans and metrics of holdfast clients with the API of OpenTelemetry.
//
//	telemetry, err := holdotel.New(nil)
//	c, err := holdfast.New(ctx, backend, &holdfast.Config{Observer: telemetry.Observer()})
//
// docs/observe.md lists the metrics and spans. Metrics have classes of names (see observe.Class and
// Options), spans have the names themselves.
package otel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/observe"
)

// scope names the library to OpenTelemetry.
const scope = "github.com/holdfast-lock/holdfast/otel"

// Options adjusts New. The zero value, or nil, is ready to use.
type Options struct {
	// TracerProvider and MeterProvider default to the global ones. The providers of the packages
	// trace/noop and metric/noop leave out spans or metrics.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider

	// Class returns the class of the name of a lock, the attribute "lock.class". It may be called
	// concurrently. Default: observe.Class.
	Class func(name string) string

	// MaxClasses bounds the number of classes; later ones are "other". Default: 100.
	MaxClasses int
}

// Telemetry makes spans and metrics of all clients that have its Observer. It is safe for concurrent
// use.
type Telemetry struct {
	tracer  trace.Tracer
	classes *observe.Classes
	clients observe.Clients
	metrics metrics
	grants  grants
}

// New returns a Telemetry. Its errors are those of the MeterProvider.
func New(opt *Options) (*Telemetry, error) {
	if opt == nil {
		opt = &Options{}
	}
	tracers, meters := opt.TracerProvider, opt.MeterProvider
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	t := &Telemetry{
		tracer:  tracers.Tracer(scope),
		classes: observe.NewClasses(opt.Class, opt.MaxClasses),
	}
	if err := t.metrics.init(meters.Meter(scope), t); err != nil {
		return nil, err
	}
	return t, nil
}

// Observer returns the Observer for holdfast.Config. Several clients may have it; observe.All adds
// others.
func (t *Telemetry) Observer() *holdfast.Observer {
	return observe.All(t.clients.Observer(), &holdfast.Observer{
		WaitEnded:    t.waitEnded,
		LeaseEnded:   t.leaseEnded,
		RenewalEnded: t.renewalEnded,
		BreakEnded:   t.metrics.breakEnded,
		Exchanged:    t.metrics.exchanged,
	})
}

// Close ends the reading of gauges. The providers keep what was recorded.
func (t *Telemetry) Close() error { return t.metrics.registration.Unregister() }
