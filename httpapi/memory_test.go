package httpapi_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/httpapi"
)

// A session remembers the numbers of requests that have ended, and not their leases: a server may have
// thousands of sessions that live long.
func TestEndedRequestsAreSmall(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, _ *holdfast.Client, _ *httpapi.Server, p *program) {
		const n, most = 1000, 1400
		note := strings.Repeat("n", 800)
		before := heap()
		for i := range n {
			a := p.call("acquire", map[string]any{"request": i + 1, "name": fmt.Sprint("job/", i), "note": note})
			a.is(t, 200, "")
			p.call("release", map[string]any{"lease": a.Lease}).is(t, 200, "")
		}
		if grown := int(heap()-before) / n; grown > most {
			t.Errorf("an ended request takes %d bytes; want at most %d", grown, most)
		}
	})
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
