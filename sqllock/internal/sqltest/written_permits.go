package sqltest

import (
	"context"
	"errors"

	"github.com/holdfast-lock/holdfast/driver"
)

// givesBack prepares a grant of two permits, one of which is given back to the first of two waiters.
func (s *scene) givesBack() func(context.Context) error {
	s.t.Helper()
	r := s.request("own", driver.Permits)
	r.N = 2
	rep, err := s.own.Acquire(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.ask(s.x.session, "here", driver.Permits)
	s.ask(s.y.session, "there", driver.Permits)
	h := driver.Hold{Name: r.Name, ID: r.ID, Token: rep.Token}
	return func(ctx context.Context) error { return s.own.Reduce(ctx, h, 1) }
}

// repeated calls do again if nothing was done: a server ends the transaction of a process that stands
// still for seconds.
func repeated(ctx context.Context, do func(context.Context) error) error {
	err := do(ctx)
	for tries := 0; errors.Is(err, driver.ErrUnavailable) && tries < 5; tries++ {
		err = do(ctx)
	}
	return err
}
