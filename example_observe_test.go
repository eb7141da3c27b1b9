package holdfast_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

// ready answers a readiness probe, and shows an operator what the client holds. It asks the store
// nothing, so it may be called often.
func ready(c *holdfast.Client) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := c.Health()
		status, text := http.StatusOK, "ok"
		if h.Err != nil {
			status, text = http.StatusServiceUnavailable, h.Err.Error()
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"status": text, "held": h.Held, "waiting": h.Waiting})
	})
}

// A handler for a readiness probe.
func ExampleClient_Health() {
	ctx := context.Background()
	c, err := holdfast.New(ctx, memlock.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	probe := func() {
		r := httptest.NewRecorder()
		ready(c).ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/ready", nil))
		fmt.Print(r.Code, " ", r.Body)
	}
	if _, err := c.Mutex("order/42").Lock(ctx); err != nil {
		log.Fatal(err)
	}
	probe()
	if err := c.Close(ctx); err != nil {
		log.Fatal(err)
	}
	probe()
	// Output:
	// 200 {"held":1,"status":"ok","waiting":0}
	// 503 {"held":0,"status":"closed","waiting":0}
}

// A lease that a function forgot to release.
func ExampleClient_Held() {
	ctx := context.Background()
	c, err := holdfast.New(ctx, memlock.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Mutex("order/42").Lock(ctx); err != nil {
		log.Fatal(err)
	}
	for _, l := range c.Held() {
		fmt.Println(l.Op, l.Name, l.Mode, "token", l.Token)
	}
	// Output: lock order/42 exclusive token 1
}
