package otel

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/observe"
)

// Link returns a link to the span of the call that took the lock of that name, for the span of work
// under the lock: ctx is the context of the lease, or of Do. ok is false if the lease has ended, or
// the call had no span.
//
//	err := c.Mutex("order/42").Do(ctx, func(ctx context.Context) error {
//		link, _ := telemetry.Link(ctx, "order/42")
//		ctx, span := tracer.Start(ctx, "charge", trace.WithLinks(link))
//		defer span.End()
//		return charge(ctx)
//	})
func (t *Telemetry) Link(ctx context.Context, name string) (link trace.Link, ok bool) {
	c := t.grants.find(grant{name, holdfast.TokenOf(ctx, name)})
	return trace.Link{SpanContext: c, Attributes: []attribute.KeyValue{attribute.String("link", "acquire")}}, c.IsValid()
}

// grants are the spans of the calls whose leases have not ended.
type grants struct {
	mu    sync.Mutex
	spans map[grant]acquired
	prune int // how many there may be until those that have ended are looked for
}

type grant struct {
	name  string
	token uint64
}

type acquired struct {
	id   string // of the grant: an adoption has the same token and another ID
	span trace.SpanContext
}

// pruneAt is how many grants there are at least before those that have ended are looked for.
const pruneAt = 1000

func (g *grants) add(w *holdfast.WaitEnd, span trace.SpanContext, clients *observe.Clients) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.spans == nil {
		g.spans, g.prune = map[grant]acquired{}, pruneAt
	}
	if len(g.spans) >= g.prune { // calls about ends may have been dropped
		held := map[grant]bool{}
		clients.Each(func(c *holdfast.Client) {
			for _, l := range c.Held() {
				held[grant{l.Name, l.Token}] = true
			}
		})
		for k := range g.spans {
			if !held[k] {
				delete(g.spans, k)
			}
		}
		g.prune = max(2*len(g.spans), pruneAt)
	}
	g.spans[grant{w.Name, w.Token}] = acquired{w.ID, span}
}

// remove returns the span of the call that took the lease, and forgets it.
func (g *grants) remove(e *holdfast.LeaseEnd) trace.SpanContext {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := grant{e.Name, e.Token}
	a := g.spans[k]
	if a.id != e.ID {
		return trace.SpanContext{}
	}
	delete(g.spans, k)
	return a.span
}

func (g *grants) find(k grant) trace.SpanContext {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.spans[k].span
}
