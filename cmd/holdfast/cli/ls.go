package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

// lsOptions are the flags of ls and top.
type lsOptions struct {
	out    format
	labels labels
	sort   order
	watch  bool
	stale  bool
	long   time.Duration
}

const aboutLs = `List the locks in use whose names begin with PREFIX, with who holds them.

--label shows only names of which a holder or waiter has that label. --sort puts first what needs
attention: "trouble" is the number of waiters times how long the first holder has had the name, or
the first waiter has waited.
--watch shows the list anew every two seconds, until interrupted; "holdfast top" is the same with
--sort trouble.

--stale shows only names that need somebody who looks, with the reason: a holder or a waiter that has
not renewed for half of its lease, a name that has been held or waited for longer than --long while
somebody waits, a grant that blocks a name at too few servers of a quorum, and a damaged record.
"holdfast info NAME" says more.

LEASE is how long the store keeps the grant if the holder renews it no more. A holder that lives
renews every third of its TTL, so a lease that runs out shows one that is gone or cut off.`

func (a *app) lsCommand() *cobra.Command {
	o := &lsOptions{sort: "name"}
	c := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the locks in use, with who holds them",
		Long:  aboutLs,
		Args:  atMostOne,
		RunE: ours(func(c *cobra.Command, args []string) error {
			if o.watch && o.out != "table" && o.out != "wide" {
				return usagef("--watch and -o %s contradict each other: holdfast watch -o jsonl is for programs%s", o.out, helpHint(c))
			}
			return a.ls(strings.Join(args, ""), o)
		}),
	}
	o.out.register(c, recordFormats...)
	o.register(c)
	c.Flags().BoolVar(&o.watch, "watch", false, "show the list anew every two seconds, until interrupted")
	return c
}

func (a *app) topCommand() *cobra.Command {
	o := &lsOptions{sort: "trouble", watch: true}
	c := &cobra.Command{
		Use:   "top [PREFIX]",
		Short: "Show the locks in use, the most troubled first, until interrupted",
		Long: `The same as "holdfast ls --watch --sort trouble": the names with many waiters behind an old grant
come first.`,
		Args: atMostOne,
		RunE: ours(func(c *cobra.Command, args []string) error { return a.ls(strings.Join(args, ""), o) }),
	}
	o.out.register(c, "table", "wide")
	o.register(c)
	return c
}

func (o *lsOptions) register(c *cobra.Command) {
	c.Flags().BoolVar(&o.stale, "stale", false, "only names that need somebody who looks, and why")
	durationVar(c.Flags(), &o.long, "long", unusuallyLong, "with --stale: what is held longer, while others wait, is shown")
	c.Flags().VarP(&o.labels, "label", "l", "only names of which a holder or waiter has this label (KEY=VALUE; repeatable)")
	c.Flags().Var(&o.sort, "sort", "the order (`KEY`: "+strings.Join(orders, ", ")+")")
	_ = c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(orders, cobra.ShellCompDirectiveNoFileComp))
}

// order is the value of --sort.
type order string

var orders = []string{"name", "held", "lease", "waiting", "trouble"}

func (o *order) String() string { return string(*o) }
func (o *order) Type() string   { return "KEY" }

func (o *order) Set(text string) error {
	if !slices.Contains(orders, text) {
		return fmt.Errorf("allowed are %s", strings.Join(orders, ", "))
	}
	*o = order(text)
	return nil
}

// compare orders two records; what needs attention comes first.
func (o order) compare(x, y *holdfast.Record) int {
	now := time.Now()
	held := func(r *holdfast.Record) time.Duration {
		if len(r.Holders) == 0 {
			return -1
		}
		return now.Sub(r.Holders[0].Since)
	}
	least := func(r *holdfast.Record) time.Duration {
		left := time.Duration(math.MaxInt64)
		for i := range r.Holders {
			left = min(left, r.Holders[i].Left)
		}
		return left
	}
	switch o {
	case "held":
		return cmp.Compare(held(y), held(x))
	case "lease":
		return cmp.Compare(least(x), least(y))
	case "waiting":
		return cmp.Compare(y.Waiting, x.Waiting)
	case "trouble":
		trouble := func(r *holdfast.Record) float64 {
			age := held(r)
			if len(r.Waiters) > 0 {
				age = max(age, now.Sub(r.Waiters[0].Since))
			}
			return float64(r.Waiting) * age.Seconds()
		}
		return cmp.Or(cmp.Compare(trouble(y), trouble(x)), cmp.Compare(held(y), held(x)))
	}
	return 0 // the store's order is by name
}

// list returns the records to show, in order.
func (o *lsOptions) list(ctx context.Context, s *session, prefix string) (all []holdfast.Record, err error) {
	has := func(list []holdfast.Holder) bool {
		return slices.ContainsFunc(list, func(h holdfast.Holder) bool {
			for k, v := range o.labels {
				if got, ok := h.Labels[k]; !ok || got != v {
					return false
				}
			}
			return true
		})
	}
	for r, err := range s.Locks(ctx, prefix) {
		if err != nil {
			return all, err
		}
		if o.stale && suspicious(&r, o.long) == "" {
			continue
		}
		if len(o.labels) == 0 || has(r.Holders) || has(r.Waiters) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(x, y holdfast.Record) int { return o.sort.compare(&x, &y) })
	return all, nil
}

func (a *app) ls(prefix string, o *lsOptions) error {
	if o.watch {
		return a.watchList(prefix, o)
	}
	ctx := context.Background()
	return a.existing(ctx, func(s *session) error {
		all, err := o.list(ctx, s, prefix)
		if err != nil && (o.out != "jsonl" && o.out != "name" || len(all) == 0) {
			return err
		}
		if len(all) == 0 && (o.out == "table" || o.out == "wide") {
			switch {
			case len(o.labels) > 0:
				fmt.Fprintln(a.stderr, "no lock in use has this label")
			case o.stale:
				fmt.Fprintln(a.stderr, "no lock in use needs somebody who looks")
			default:
				fmt.Fprintf(a.stderr, "no lock is in use; the store is %s\n", s.where())
			}
			return nil
		}
		return cmp.Or(a.printList(all, o), err)
	})
}

func (a *app) printList(all []holdfast.Record, o *lsOptions) error {
	out := o.out
	records := []recordJSON{}
	for i := range all {
		r := &all[i]
		var err error
		switch out {
		case "jsonl":
			err = writeJSON(a.stdout, o.json(r), false)
		case "json":
			j := o.json(r)
			j.Schema = "" // the list has it once
			records = append(records, j)
		case "name":
			_, err = fmt.Fprintln(a.stdout, show(r.Name))
		}
		if err != nil {
			return err
		}
	}
	switch out {
	case "json":
		return writeJSON(a.stdout, struct {
			Schema string       `json:"schema"`
			Locks  []recordJSON `json:"locks"`
		}{schema, records}, true)
	case "table", "wide":
		if err := table(a.stdout, o.rows(all)); err != nil {
			return err
		}
		if o.stale {
			fmt.Fprintln(a.stderr, `"holdfast info NAME" says more about each, and what to do`)
		}
	}
	return nil
}

// json returns a record in JSON, with the reason of --stale.
func (o *lsOptions) json(r *holdfast.Record) recordJSON {
	j := toJSON(r)
	if o.stale {
		j.Why = []string{suspicious(r, o.long)}
	}
	return j
}

// rows returns a table of records.
func (o *lsOptions) rows(all []holdfast.Record) [][]string {
	wide := o.out == "wide"
	list := [][]string{{"NAME", "USE", "HOLDER", "PROGRAM", "HELD", "LEASE", "WAITING", "NOTE"}}
	if wide {
		list[0] = append(list[0], "KIND", "TOKEN", "LABELS")
	}
	for i := range all {
		list = append(list, row(&all[i], wide))
	}
	if o.stale {
		list[0] = append(list[0], "WHY")
		for i := range all {
			list[i+1] = append(list[i+1], suspicious(&all[i], o.long))
		}
	}
	return list
}

// row returns a record in one line, with the first holder only.
func row(r *holdfast.Record, wide bool) []string {
	holder, program, held, left, note, labels := "-", "-", "-", "-", "-", "-"
	if all := slices.Concat(r.Holders, r.Partial); len(all) > 0 { // a record has either
		h := &all[0]
		holder, held, left = who(h), heldFor(h), leaseLeft(h)
		switch {
		case h.Partial:
			holder = "(in part) " + holder
		case h.Kept:
			holder = "(kept) " + holder
		}
		if n := len(all) - 1; n > 0 {
			holder += fmt.Sprintf(" +%d", n)
		}
		program, note, labels = orDash(show(h.Program), h.Program), orDash(show(h.Note), h.Note), orDash(joined(h.Labels),
			joined(h.Labels))
	}
	cells := []string{show(r.Name), use(r), holder, program, held, left, strconv.Itoa(r.Waiting), note}
	if r.Damaged != "" {
		cells = []string{show(r.Name), "damaged: " + oneLine(r.Damaged), holder, program, held, left, "-", note}
	}
	if wide {
		cells = append(cells, orDash(r.Kind, r.Kind), tokenText(r.Token), labels)
	}
	return cells
}

// use returns how much of a name is taken.
func use(r *holdfast.Record) string {
	switch {
	case r.Kind == "semaphore":
		return fmt.Sprintf("%d/%d", used(r), r.Limit)
	case r.Kind == "latch":
		return fmt.Sprintf("%d left", r.Count)
	case len(r.Holders) == 0:
		return "-"
	}
	return mode(r.Kind, &r.Holders[0])
}

func orDash(shown, text string) string {
	if text == "" {
		return "-"
	}
	return shown
}
