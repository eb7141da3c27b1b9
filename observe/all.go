package observe

import "github.com/holdfast-lock/holdfast"

// All returns an Observer that calls each of the given ones, in their order; nil ones are left out.
// If one panics, the others are still called. A field that none of them has stays nil, and costs
// nothing. Later changes of the given Observers have no effect.
func All(all ...*holdfast.Observer) *holdfast.Observer {
	o := &holdfast.Observer{}
	for _, p := range all {
		if p == nil {
			continue
		}
		o.Opened = join(o.Opened, p.Opened)
		o.Closed = join(o.Closed, p.Closed)
		o.Waiting = join(o.Waiting, p.Waiting)
		o.Acquired = join3(o.Acquired, p.Acquired)
		o.WaitEnded = join2(o.WaitEnded, p.WaitEnded)
		o.Renewed = join3(o.Renewed, p.Renewed)
		o.RenewalEnded = join(o.RenewalEnded, p.RenewalEnded)
		o.Lost = join3(o.Lost, p.Lost)
		o.Revoked = join3(o.Revoked, p.Revoked)
		o.Released = join4(o.Released, p.Released)
		o.LeaseEnded = join(o.LeaseEnded, p.LeaseEnded)
		o.BreakEnded = join(o.BreakEnded, p.BreakEnded)
		o.Exchanged = join(o.Exchanged, p.Exchanged)
	}
	return o
}

// join returns a function that calls f and g, also if f panics. Either may be nil.
func join[A any](f, g func(A)) func(A) {
	if f == nil || g == nil {
		return or(f, g, f == nil)
	}
	return func(a A) {
		defer g(a)
		f(a)
	}
}

func join2[A, B any](f, g func(A, B)) func(A, B) {
	if f == nil || g == nil {
		return or(f, g, f == nil)
	}
	return func(a A, b B) {
		defer g(a, b)
		f(a, b)
	}
}

func join3[A, B, C any](f, g func(A, B, C)) func(A, B, C) {
	if f == nil || g == nil {
		return or(f, g, f == nil)
	}
	return func(a A, b B, c C) {
		defer g(a, b, c)
		f(a, b, c)
	}
}

func join4[A, B, C, D any](f, g func(A, B, C, D)) func(A, B, C, D) {
	if f == nil || g == nil {
		return or(f, g, f == nil)
	}
	return func(a A, b B, c C, d D) {
		defer g(a, b, c, d)
		f(a, b, c, d)
	}
}

// or returns g if second is set, else f.
func or[F any](f, g F, second bool) F {
	if second {
		return g
	}
	return f
}
