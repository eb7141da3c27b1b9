package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/backoff"
)

// run runs argv while it holds the lock and the other locks that o names.
func (a *app) run(o *runOptions, name string, argv []string) error {
	if err := checkNames(append([]string{name}, o.also...)...); err != nil {
		return err
	}
	a.bound(o.wait)
	t, err := a.task(&o.taskOptions, argv)
	if err != nil {
		return err
	}
	return t.with(func(s *session) error {
		h, err := t.take(func(ctx context.Context) (*hold, error) { return t.lock(ctx, s, o, name) })
		// After the command: a terminal may stop background processes that write, and this one has the lock.
		if told := err == nil || errors.Is(err, holdfast.ErrHeld) && !o.skipOK; told && o.every > 0 && a.url() == "" {
			defer a.say("no store is named, so COMMAND runs once per tick on this machine, for processes of this user; --store or %s names one for several machines",
				envURL)
		}
		if err != nil {
			return o.notRun(s, name, err)
		}
		_, err = t.under(s, h, o.maxHold, o.lease)
		if (err == nil && o.skipOK) || s.keep {
			return err
		}
		if next := o.nextRun(s, name); next != "" {
			a.say("%s: %s", show(name), next)
		}
		return err
	})
}

// notRun turns the error of a taken lock into the exit code that the flags ask for. Its text says when
// the next run is possible.
func (o *runOptions) notRun(s *session, name string, err error) error {
	switch {
	case !errors.Is(err, holdfast.ErrHeld):
		return err
	case o.skipOK && !errors.As(err, new(unknownRun)):
		return nil
	}
	if next := o.nextRun(s, name); next != "" && next != possibleNow { // it was not, a moment ago
		err = fmt.Errorf("%w; %s", err, next)
	}
	return &failure{o.busyCode, err}
}

// unknownRun is an error of --every that does not say whether the job has run in this tick.
type unknownRun struct{ error }

func (e unknownRun) Unwrap() error { return e.error }

// obstacle is as in OnlyOne: it returns how long a grant is still in the way of a lock that was
// refused, and 0 if the grant is a run of the job.
func obstacle(err error, again bool) time.Duration {
	var e *holdfast.Error
	switch {
	case again && isOutage(err):
		return 1
	case !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &e):
		return 0
	case e.Holder == nil || e.Holder.Kept && (e.Holder.Partial || e.Holder.Abandoned):
		return 1
	case !e.Holder.Partial && !e.Holder.Abandoned:
		return 0
	}
	return max(e.Holder.Left, 1)
}

// tooFewFree reports whether nobody can get the name that err is about, because too few servers of a
// quorum are free.
func (s *session) tooFewFree(ctx context.Context, err error, most time.Duration) bool {
	var e *holdfast.Error
	if !errors.As(err, &e) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	r, err := s.Inspect(ctx, e.Name)
	return err == nil && len(r.Holders) == 0 && r.FreeIn > 0
}

const possibleNow = "next run possible now"

// nextRun says when --every lets COMMAND run again; "": it does not, or the store does not say when.
func (o *runOptions) nextRun(s *session, name string) string {
	if o.every == 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitLook)
	defer cancel()
	var last time.Time
	for _, n := range append([]string{name}, o.also...) {
		next, err := s.NextRun(ctx, n, o.every)
		if err != nil {
			return ""
		}
		if next.After(last) {
			last = next
		}
	}
	left := time.Until(last)
	if left <= 0 {
		return possibleNow
	}
	return fmt.Sprintf("next run possible at %s, in %s", last.UTC().Format(time.RFC3339), rough(left))
}

// lock acquires the locks that o asks for.
func (t *task) lock(ctx context.Context, s *session, o *runOptions, name string) (*hold, error) {
	var m *holdfast.MultiLease
	var err error
	unknown := false // whether the job has run
	switch {
	case o.noWait || o.wait.set && o.wait.d == 0:
		m, err = holdfast.TryLockAll(ctx, o.parts(s.Client, name)...)
		unknown = o.every > 0 && obstacle(err, false) > 0
	case o.every > 0:
		tries := 0
		backoff.Outlast(ctx, s.TTL(), o.every, func(rest time.Duration) time.Duration { // as OnlyOne
			if tries++; tries == 3 && !o.skipOK {
				t.a.say("%v; trying again for %s", s.held(err, o, name), rough(rest))
			}
			if tries > 1 && rest > 0 && s.tooFewFree(ctx, err, rest) {
				return 1
			}
			m, err = holdfast.TryLockAll(ctx, o.parts(s.Client, name)...)
			return obstacle(err, tries > 1)
		})
		unknown = obstacle(err, false) > 0
	default:
		if err = o.waitsForItself(ctx, s, name); err != nil {
			break
		}
		err = t.line.during(ctx, s, name, func(ctx context.Context) (err error) {
			m, err = holdfast.LockAll(ctx, o.parts(s.Client, name)...)
			return err
		})
	}
	if err != nil {
		if err = s.held(err, o, name); unknown {
			err = unknownRun{err}
		}
		return nil, err
	}
	leases := m.Leases()
	main := slices.IndexFunc(leases, func(l *holdfast.Lease) bool { return l.Name() == name })
	leases[0], leases[main] = leases[main], leases[0]
	return &hold{lease: m, parts: leases, retry: o.retry}, nil
}

// held returns an ErrHeld with a text about who holds the lock. A store may refuse a request without
// finding out who does, or since when.
func (s *session) held(err error, o *runOptions, name string) error {
	var e *holdfast.Error
	if !errors.Is(err, holdfast.ErrHeld) || !errors.As(err, &e) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitLook)
	defer cancel()
	holder, permits := e.Holder, ""
	if r, err := s.Inspect(ctx, e.Name); err == nil {
		for i := range r.Holders {
			if holder == nil || r.Holders[i].ID == holder.ID {
				holder = &r.Holders[i]
			}
		}
		if len(r.Holders) == 0 && len(r.Partial) > 0 { // a refusal cannot tell readers apart
			holder = &r.Partial[0]
		}
		if r.Kind == "semaphore" && e.Name == name {
			permits = permitsText(&r, o.permits)
		}
	}
	switch {
	case permits != "" && holder != nil:
		return &worded{fmt.Sprintf("%s: %s; %s", show(name), permits, describe(holder)), err}
	case permits != "":
		return &worded{show(name) + ": " + permits, err}
	case holder != nil:
		return &worded{fmt.Sprintf("%s is %s", show(e.Name), describe(holder)), err}
	}
	return err
}

// parts returns NAME, in the mode that the flags ask for, and the other locks.
func (o *runOptions) parts(c *holdfast.Client, name string) []holdfast.Part {
	opts := o.lockOptions()
	lock := func(name string) holdfast.Part {
		switch {
		case o.shared:
			return c.RWMutex(name, opts...).Reader()
		case o.exclusive:
			return c.RWMutex(name, opts...)
		}
		// To us a mutex is a writer, but not to Apache Curator: its two kinds of lock ignore each
		// other.
		return c.Mutex(name, opts...)
	}
	parts := []holdfast.Part{lock(name)}
	if o.limit > 0 || o.asSet { // o.limit is then LimitAsSet
		parts[0] = c.Semaphore(name, o.limit, opts...).Permits(o.permits)
	}
	for _, n := range o.also {
		parts = append(parts, lock(n))
	}
	return parts
}

func (o *runOptions) lockOptions() []holdfast.Option {
	var opts []holdfast.Option
	if o.wait.set && o.wait.d > 0 {
		opts = append(opts, holdfast.WaitAtMost(o.wait.d))
	}
	if d := o.keeps(); d > 0 {
		opts = append(opts, holdfast.MinHold(d))
	}
	if o.lease > 0 {
		opts = append(opts, holdfast.MaxHold(o.lease))
	}
	if o.poll > 0 {
		opts = append(opts, holdfast.Poll(o.poll, o.tries))
	}
	if o.note != "" {
		opts = append(opts, holdfast.Note(o.note))
	}
	return opts
}

// waitsForItself returns an error if a wait for one of the locks could never end.
func (o *runOptions) waitsForItself(ctx context.Context, s *session, name string) error {
	if err := s.waitsForItself(ctx, name, o.permits, o.limit, o.limit > 0 || o.asSet); err != nil {
		return err
	}
	for _, n := range o.also {
		if err := s.waitsForItself(ctx, n, 1, 0, false); err != nil {
			return err
		}
	}
	return nil
}
