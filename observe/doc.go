// Package observe has Observers for holdfast clients, and what the modules otel and prometheus share.
// It needs only the standard library.
//
//	c, err := holdfast.New(ctx, backend, &holdfast.Config{
//		Observer: observe.All(observe.Log(logger, nil), metrics.Observer()),
//		Profiles: observe.Profiles(),
//	})
//
// docs/observe.md says what is measured and which alerts are worth having.
package observe
