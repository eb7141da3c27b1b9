package observe_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
	"github.com/holdfast-lock/holdfast/observe"
)

// A program logs what happens to its locks, and counts calls that gave up.
func ExampleAll() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "waited", "held", "mode": // for the output of this example
				return slog.Attr{}
			}
			return a
		},
	}))
	var gaveUp atomic.Int64
	ctx := context.Background()
	c, err := holdfast.New(ctx, memlock.New(), &holdfast.Config{
		Profiles: observe.Profiles(),
		Observer: observe.All(
			observe.Log(logger, nil),
			&holdfast.Observer{WaitEnded: func(_ context.Context, w holdfast.WaitEnd) {
				if w.Outcome == holdfast.OutcomeTimeout {
					gaveUp.Add(1)
				}
			}},
		),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	lease, err := c.Mutex("deploy/prod").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, _, err := lease.HandOff(); err != nil {
		log.Fatal(err)
	}
	if err := lease.Release(); err != nil {
		log.Fatal(err)
	}
	if err := c.Close(ctx); err != nil { // waits for the log
		log.Fatal(err)
	}
	fmt.Println(gaveUp.Load(), "calls gave up")
	// Output:
	// level=INFO msg="holdfast: lease handed off" lock=deploy/prod store=memory op=lock token=1 reason="handed off"
	// 0 calls gave up
}

func ExampleClass() {
	fmt.Println(observe.Class("order/42"))
	fmt.Println(observe.Class("user/550e8400-e29b-41d4-a716-446655440000/cart"))
	fmt.Println(observe.Class("deploy/prod"))
	// Output:
	// order/*
	// user/*/cart
	// deploy/prod
}
