package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/open"
	"github.com/holdfast-lock/holdfast/driver"
)

const aboutDoctor = `Look for what endangers the locks of a store, as it is set up now: settings of the server, the
way to it, its clock, its disk. Each finding says what was found, what that means for locks
and what to change. What was looked at and is in order is listed, too.

  ENDANGERS  two may hold one lock
  UNKNOWN    it could not be found out, and why
  SLOWS      locks are sound; waits are longer, requests fail, or tokens reach less far
  fine       it is as it should be

Nothing of the store is changed, but that a lock with a name of its own is taken, handed over
and released, unless that would not be allowed (--no-try).

Exit codes: 0 if nothing endangers locks; 1 if something does, or hides in what could not be
found out and is often set in a dangerous way (marked with !). --accept says which findings are
known and in order: they are shown and do not count. Else as everywhere: 69 the store cannot
be reached, 77 it refuses, 78 wrong configuration.

--ttl is for how long the leases of your clients last, if not for the default.`

// doctorLimit bounds the whole examination.
const doctorLimit = 45 * time.Second

// exitDanger is the exit code if something endangers locks.
const exitDanger = 1

// doctorFlags are the command's own.
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
		Short: "Look for what endangers locks in the way that a store is set up",
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
	c.Flags().StringSliceVar(&flags.accept, "accept", nil, "findings with these `CODES` are known and do not count (CODE[,CODE...], such as redis.replicas)")
	c.Flags().BoolVar(&flags.noTry, "no-try", false, "take no lock to try the store with")
	return c
}

// diagnosis is what the command found.
type diagnosis struct {
	place    string
	store    string
	ttl      time.Duration
	list     []driver.Finding
	accepted map[string]bool
	err      error // why it could not go on
}

func (a *app) doctor(flags doctorFlags) error {
	d := &diagnosis{ttl: a.ttl, accepted: map[string]bool{}}
	for _, code := range flags.accept {
		if err := checkCode(code); err != nil {
			return err
		}
		d.accepted[code] = true
	}
	ctx, leave := leaveOnSignal(catchSignals())
	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	d.err = a.examine(ctx, d, !flags.noTry)
	if came := leave(); came != nil {
		return came
	}
	// The worst first; of the same kind, in the order in which it was looked at.
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

// rank is how far up a finding stands.
func (d *diagnosis) rank(f *driver.Finding) int {
	n := 4 * int(f.Severity)
	if f.MayEndanger {
		n++
	}
	if d.accepted[f.Code] { // below the others, above what is fine
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

// examine fills in d as far as it comes.
func (a *app) examine(ctx context.Context, d *diagnosis, try bool) (err error) {
	began := time.Now()
	st, err := open.Open(ctx, a.url())
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
	d.list, err = st.Diagnose(ctx, a.url(), a.ttl)
	if len(d.list) == 0 { // nothing was answered
		err = a.unopened(err, time.Since(began))
	}
	if err == nil && try {
		var f driver.Finding
		if f, err = a.tryLock(ctx, st); err == nil {
			d.list = append(d.list, f)
		}
	}
	return err
}

// report writes what was found.
func (a *app) report(d *diagnosis, out format) error {
	if out == "json" {
		return writeJSON(a.stdout, d.json(a.url()), true)
	}
	if len(d.list) == 0 { // the error says all there is to say
		return nil
	}
	_, err := fmt.Fprint(a.stdout, d.text(columnsOf(a.stdout)))
	return err
}

// columnsOf is how wide w is; 0: lines may be of any length.
func columnsOf(w any) int {
	if o, ok := w.(*output); ok {
		return width(o.to)
	}
	return 0
}
