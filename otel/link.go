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
	c := t.grants.find(grant{name, holdfast.TokenOf(ctx, name)}, trace.SpanContextFromContext(ctx))
	return trace.Link{SpanContext: c, Attributes: []attribute.KeyValue{attribute.String("link", "acquire")}}, c.IsValid()
}

// grants are the spans of the calls whose leases have not ended.
type grants struct {
	mu    sync.Mutex
	spans map[grant]acquirers
	prune int // how many there may be until those that have ended are looked for
}

type grant struct {
	name  string
	token uint64
}

// acquirers are the calls whose leases have one grant: one, or the readers of a client that share it.
type acquirers struct {
	id    string // of the grant: an adoption has the same token and another ID
	first acquirer
	more  []acquirer
	left  int // how many of the leases have ended
}

// acquirer has the span of a call for a lock, and the span in which that was called.
type acquirer struct{ span, caller trace.SpanContext }

// pruneAt is how many grants there are at least before those that have ended are looked for.
const pruneAt = 1000

func (g *grants) add(w *holdfast.WaitEnd, a acquirer, clients *observe.Clients) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.spans == nil {
		g.spans, g.prune = map[grant]acquirers{}, pruneAt
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
	k := grant{w.Name, w.Token}
	if all, ok := g.spans[k]; ok && all.id == w.ID {
		all.more = append(all.more, a)
		g.spans[k] = all
		return
	}
	g.spans[k] = acquirers{id: w.ID, first: a}
}

// remove returns the span of the call that took the lease, if that is known. It forgets the calls of a grant
// when all their leases have ended: an end does not say which of several leases it is of.
func (g *grants) remove(e *holdfast.LeaseEnd) (span trace.SpanContext) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := grant{e.Name, e.Token}
	all := g.spans[k]
	if all.id != e.ID {
		return trace.SpanContext{}
	}
	if len(all.more) == 0 {
		span = all.first.span
	}
	if all.left++; all.left > len(all.more) {
		delete(g.spans, k)
	} else {
		g.spans[k] = all
	}
	return span
}

// find returns the span of the call for k: of several the one that was called in the span caller, or else in
// its trace.
func (g *grants) find(k grant, caller trace.SpanContext) trace.SpanContext {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.spans[k]
	best := all.first
	for _, a := range all.more {
		switch {
		case a.caller.Equal(caller):
			return a.span
		case a.caller.TraceID() == caller.TraceID() && !best.caller.Equal(caller):
			best = a
		}
	}
	return best.span
}
