package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/open"
)

const aboutDoctor = `Check whether the setup of a store endangers locks: the settings of its server, the connection
to it, its clock, its disk. Each finding says what doctor found, what that means for locks and
what to change. Checks that found nothing wrong are listed too.

  ENDANGERS  two clients may hold one lock
  UNKNOWN    doctor could not find out, and why
  SLOWS      locks are sound; waits are longer, requests fail, or fencing tokens protect less
  fine       as it should be

doctor changes nothing in the store, except that it takes a lock with a name of its own,
hands it over and releases it. --no-try leaves that out. If this user may not lock, doctor says so
and goes on.

Exit codes: 0 if nothing endangers locks; 1 if something does, or if an unknown setting is
often dangerous (marked with !). Findings given with --accept are shown and do not count.
Otherwise as for every command: 69 the store cannot be reached, 77 it refuses, 78 wrong
configuration.

Use --ttl if the leases of your clients do not have the default length.`

// doctorLimit bounds the whole examination.
const doctorLimit = 45 * time.Second

// exitDanger is the exit code if something endangers locks.
const exitDanger = 1

// doctorFlags are the flags of doctor.
type doctorFlags struct {
	out    format
	json   bool
	accept []string
	noTry  bool
}

func (a *app) doctorCommand() *cobra.Command {
	var flags doctorFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether the setup of a store endangers locks",
		Long:  aboutDoctor,
		Example: `  holdfast doctor --store redis://cache:6379
  holdfast doctor --json --accept redis.replicas`,
		Args: noArguments,
		RunE: ours(func(c *cobra.Command, _ []string) error {
			if flags.json {
				if c.Flags().Changed("output") && flags.out != "json" {
					return usagef("--json and -o %s contradict each other", flags.out)
				}
				flags.out = "json"
			}
			return a.doctor(flags)
		}),
	}
	flags.out.register(c, "text", "json")
	c.Flags().BoolVar(&flags.json, "json", false, "the same as -o json")
	c.Flags().StringSliceVar(&flags.accept, "accept", nil,
		"findings with these `CODES` are known and do not count (CODE[,CODE...], such as redis.replicas)")
	c.Flags().BoolVar(&flags.noTry, "no-try", false, "take no lock to test the store")
	return c
}

// diagnosis is the result of the command.
type diagnosis struct {
	place    string
	store    string
	ttl      time.Duration
	list     []driver.Finding
	accepted map[string]bool
	err      error // why the checks could not go on
}

func (a *app) doctor(flags doctorFlags) error {
	d := &diagnosis{ttl: a.ttl, accepted: map[string]bool{}}
	for _, code := range flags.accept {
		if err := checkCode(code); err != nil {
			return err
		}
		d.accepted[code] = true
	}
	ctx, detach := cancelOnSignal(catchSignals())
	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	d.err = a.examine(ctx, d, !flags.noTry)
	if caught := detach(); caught != nil {
		return caught
	}
	// The worst first; findings of one rank by code.
	slices.SortStableFunc(d.list, func(x, y driver.Finding) int {
		return cmp.Or(cmp.Compare(d.rank(&y), d.rank(&x)), cmp.Compare(x.Code, y.Code))
	})
	if err := a.report(d, flags.out); err != nil {
		return err
	}
	if d.err == nil && d.dangers() > 0 {
		return &failure{code: exitDanger}
	}
	return d.err
}

// rank orders findings; the highest comes first.
func (d *diagnosis) rank(f *driver.Finding) int {
	n := 4 * int(f.Severity)
	if f.MayEndanger {
		n++
	}
	if d.accepted[f.Code] { // below the others, above fine findings
		n = min(n, 1)
	}
	return n
}

// counts reports whether a finding makes the exit code 1.
func (d *diagnosis) counts(f *driver.Finding) bool { return f.Danger() && !d.accepted[f.Code] }

func (d *diagnosis) dangers() (n int) {
	for i := range d.list {
		if d.counts(&d.list[i]) {
			n++
		}
	}
	return n
}

// examine fills in d until an error.
func (a *app) examine(ctx context.Context, d *diagnosis, try bool) (err error) {
	began := time.Now()
	var st *open.Store
	if err = open.Exists(a.url()); err == nil {
		st, err = open.Open(ctx, a.url())
	}
	if err != nil {
		return a.unopened(err, time.Since(began))
	}
	defer func() {
		closed := make(chan error, 1)
		go func() { closed <- st.Close() }()
		select {
		case cerr := <-closed:
			if cerr != nil && err == nil {
				a.say("closing the store: %s", oneLine(cerr.Error()))
			}
		case <-time.After(2 * closeLimit):
		}
	}()
	d.store, d.place = st.Name(), st.Place
	answering := a.answering(ctx, st)
	d.list, err = st.Diagnose(answering, a.url(), a.ttl)
	if err != nil && answering.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, context.DeadlineExceeded)
	}
	a.adviseServers(d.list)
	if len(d.list) == 0 { // the store answered nothing
		err = a.unopened(err, time.Since(began))
	}
	if err == nil && try {
		var f driver.Finding
		f, err = a.tryLock(ctx, st)
		if errors.Is(err, fs.ErrPermission) {
			f, err = untried(err), nil
		}
		if err == nil {
			d.list = append(d.list, f)
		}
	}
	return err
}

// adviseServers says what to do about the refusals of single servers, as the error of a whole store does.
func (a *app) adviseServers(list []driver.Finding) {
	u, err := url.Parse(a.url())
	if err != nil {
		return
	}
	for i := range list {
		if said := ofServer.FindStringSubmatch(list[i].Found); said != nil && list[i].Code == "quorum.reach" {
			list[i].Do = cmp.Or(refusalAdvice(said[1], said[0], "", u), list[i].Do)
		}
	}
}

// answering returns ctx, which ends early if the store does not answer a simple question: each check
// of such a store would have to wait as long.
func (a *app) answering(ctx context.Context, st *open.Store) context.Context {
	ctx, giveUp := context.WithCancelCause(ctx)
	go func() {
		asked, cancel := context.WithTimeout(ctx, lookLimit)
		defer cancel()
		if _, err := st.Inspect(asked, "holdfast doctor"); err != nil && asked.Err() != nil {
			giveUp(asked.Err())
		}
	}()
	return ctx
}

// report writes the findings.
func (a *app) report(d *diagnosis, out format) error {
	if out == "json" {
		return writeJSON(a.stdout, d.json(a.url()), true)
	}
	if len(d.list) == 0 { // the error says it all
		return nil
	}
	_, err := fmt.Fprint(a.stdout, d.text(columnsOf(a.stdout)))
	return err
}

// columnsOf returns how many columns w has; 0: lines may be of any length.
func columnsOf(w any) int {
	if o, ok := w.(*output); ok {
		return width(o.to)
	}
	return 0
}
