package prometheus_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
	holdprom "github.com/holdfast-lock/holdfast/prometheus"
)

func Example() {
	metrics := holdprom.New(nil)
	registry := prom.NewRegistry()
	registry.MustRegister(metrics)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{}) // for /metrics

	ctx := context.Background()
	c, err := holdfast.New(ctx, memlock.New(), &holdfast.Config{Observer: metrics.Observer()})
	if err != nil {
		log.Fatal(err)
	}
	for n := range 3 {
		err := c.Mutex(fmt.Sprint("order/", n)).Do(ctx, func(context.Context) error { return nil })
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := c.Close(ctx); err != nil {
		log.Fatal(err)
	}

	r := httptest.NewRecorder()
	handler.ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(r.Body.String()) {
		if strings.HasPrefix(line, "holdfast_acquire_duration_seconds_count") {
			fmt.Print(line)
		}
	}
	// Output:
	// holdfast_acquire_duration_seconds_count{backend="memory",class="order/*",mode="exclusive",outcome="granted"} 3
}
