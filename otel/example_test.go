package otel_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
	holdotel "github.com/holdfast-lock/holdfast/otel"
)

func Example() {
	ctx := context.Background()
	exporter := tracetest.NewInMemoryExporter() // a program has one of its own
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	tracer := tracers.Tracer("example")

	telemetry, err := holdotel.New(&holdotel.Options{TracerProvider: tracers, MeterProvider: noop.NewMeterProvider()})
	if err != nil {
		log.Fatal(err)
	}
	c, err := holdfast.New(ctx, memlock.New(), &holdfast.Config{Observer: telemetry.Observer()})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	ctx, span := tracer.Start(ctx, "request")
	m := c.Mutex("order/42", holdotel.TraceLabel(ctx)) // waiters link to this request
	err = m.Do(ctx, func(ctx context.Context) error {
		link, _ := telemetry.Link(ctx, "order/42")
		_, span := tracer.Start(ctx, "charge", trace.WithLinks(link))
		defer span.End()
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	span.End()
	for _, s := range exporter.GetSpans() {
		fmt.Println(s.Name, len(s.Links))
	}
	// Output:
	// holdfast acquire 0
	// charge 1
	// request 0
}
