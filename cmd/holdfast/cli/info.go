package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

const aboutInfo = `Show one lock: who holds it and for how long, when the holder renewed its lease last, who waits in
which place, and in words why it is taken and what to do.

RENEWED is computed from the length of the lease and what is left of it. A client that lives renews
every third of its lease. It is not known (-) in ZooKeeper, for other programs, and for locks with
--lease or --max-hold of a program. COMMAND is the command line of holders that were started with
--show-command.

With Redis, info also looks whether another program uses the same name as a key, such as one that
locks with SET NX: the two do not exclude each other.

Exit codes of -q, for scripts: 0 if somebody holds the name, or if it is kept, or if too few servers
of a quorum are free, or if it is a latch that is not open; 1 if not. Other codes are as for every
command.`

// infoOptions are the flags of info.
type infoOptions struct {
	out   format
	long  time.Duration
	quiet bool
}

// exitFree is the exit code of info -q for a name that nobody holds.
const exitFree = 1

func (a *app) infoCommand() *cobra.Command {
	o := &infoOptions{}
	c := &cobra.Command{
		Use:   "info NAME",
		Short: "Show one lock: holders, tokens, waiters, and why it is taken",
		Long:  aboutInfo,
		Example: `  holdfast info deploy/prod
  if holdfast info -q deploy/prod; then echo taken; fi`,
		Args: exactly("the name of the lock"),
		RunE: ours(func(c *cobra.Command, args []string) error { return a.info(args[0], o) }),
	}
	o.out.register(c, recordFormats...)
	durationVar(c.Flags(), &o.long, "long", unusuallyLong, "a lock that is held longer is held unusually long")
	c.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print nothing; the exit code says whether it is held")
	return c
}

func (a *app) info(name string, o *infoOptions) error {
	ctx := context.Background()
	return a.existing(ctx, func(s *session) error {
		r, err := s.Inspect(ctx, name)
		if err != nil {
			return err
		}
		r.Name = name // a store may leave it out if the name is not in use
		if o.quiet {
			if len(r.Holders)+len(r.Partial) == 0 && r.Count == 0 {
				return &failure{code: exitFree}
			}
			return nil
		}
		if o.out == "name" {
			_, err := fmt.Fprintln(a.stdout, show(name))
			return err
		}
		beside, acts := s.neighbors(ctx, name), s.acts(ctx, &r)
		if o.out == "json" || o.out == "jsonl" {
			j := toJSON(&r)
			j.Why, j.Beside = append(why(&r, o.long), acts...), beside
			return writeJSON(a.stdout, j, o.out == "json")
		}
		if err := a.describe(&r, acts, o.out == "wide", o.long); err != nil {
			return err
		}
		if r.Kind == "" {
			fmt.Fprintf(a.stderr, "the store is %s\n", s.where())
		}
		if len(beside) > 0 {
			_, err = fmt.Fprintln(a.stdout, "\n"+besideText(beside))
		}
		return err
	})
}

// neighbors returns what other programs keep under the name. Most users of a store may not look at
// keys of others, so an error is no message.
func (s *session) neighbors(ctx context.Context, name string) []string {
	ctx, cancel := context.WithTimeout(ctx, waitLook)
	defer cancel()
	list, _ := s.store.Neighbors(ctx, name)
	return list
}

// where returns the store for people, and that it is for this machine only.
func (s *session) where() string {
	switch s.store.Name() {
	case "sqlite":
		return show(s.place) + ", for processes of this machine only"
	case "memory":
		return "memory:, for this process only"
	}
	return show(s.place)
}

func (a *app) describe(r *holdfast.Record, acts []string, wide bool, long time.Duration) error {
	if r.Kind == "" {
		_, err := fmt.Fprintln(a.stdout, strings.Join(append([]string{show(r.Name) + " is not in use"}, acts...), "\n"))
		return err
	}
	rows := [][]string{{"name", show(r.Name)}, {"kind", r.Kind}, {"token", strconv.FormatUint(r.Token, 10)},
		{"waiting", strconv.Itoa(r.Waiting)}}
	if len(r.Waiters) > 0 {
		rows = append(rows, []string{"oldest", "has waited for " + rough(oldest(r))})
	}
	switch r.Kind {
	case "semaphore":
		rows = append(rows, []string{"permits", fmt.Sprintf("%d of %d in use", used(r), r.Limit)})
		if r.LimitSet {
			rows = append(rows, []string{"limit", `set: it stays until "sem limit --clear" removes it`})
		}
	case "latch":
		rows = append(rows, []string{"count", fmt.Sprintf("%d left", r.Count)})
	}
	if err := table(a.stdout, rows); err != nil {
		return err
	}
	for _, part := range []struct {
		title, since, left string
		list               []holdfast.Holder
	}{
		{"HOLDER", "HELD", "LEASE", r.Holders},
		{"AT TOO FEW SERVERS", "HELD", "LEASE", r.Partial},
		{"WAITER", "WAITS", "PLACE", r.Waiters},
	} {
		if len(part.list) == 0 {
			continue
		}
		commands := slices.ContainsFunc(part.list, func(h holdfast.Holder) bool { return h.Command != "" })
		rows := [][]string{{part.title, "MODE", "PROGRAM", part.since, part.left, "RENEWED", "TOKEN", "NOTE", "LABELS"}}
		if wide {
			rows[0] = append(rows[0], "ID")
		}
		if commands {
			rows[0] = append(rows[0], "COMMAND")
		}
		for i := range part.list {
			h := &part.list[i]
			cells := detail(r.Kind, h, wide)
			if part.title == "WAITER" {
				cells[0] = fmt.Sprintf("%-3d %s", i+1, cells[0])
			}
			if commands {
				cells = append(cells, orDash(show(h.Command), h.Command))
			}
			rows = append(rows, cells)
		}
		if part.title == "WAITER" {
			rows[0][0] = "#   WAITER"
		}
		fmt.Fprintln(a.stdout)
		if err := table(a.stdout, rows); err != nil {
			return err
		}
	}
	if said := append(why(r, long), acts...); len(said) > 0 {
		_, err := fmt.Fprintln(a.stdout, "\n"+strings.Join(said, "\n"))
		return err
	}
	return nil
}

func detail(kind string, h *holdfast.Holder, wide bool) []string {
	name := who(h)
	if h.Kept {
		name = "(kept) " + name
	}
	cells := []string{
		name, mode(kind, h), orDash(show(h.Program), h.Program), heldFor(h), leaseLeft(h), renewedText(h),
		tokenText(h.Token), orDash(show(h.Note), h.Note), orDash(joined(h.Labels), joined(h.Labels)),
	}
	if wide {
		cells = append(cells, show(h.ID))
	}
	return cells
}

// tokenText returns a token, or - for none.
func tokenText(token uint64) string {
	if token == 0 {
		return "-"
	}
	return strconv.FormatUint(token, 10)
}

// mode returns how much of a name a holder has, or a waiter wants.
func mode(kind string, h *holdfast.Holder) string {
	switch {
	case kind == "semaphore":
		return fmt.Sprintf("permits:%d", h.Permits)
	case h.Shared:
		return "shared"
	}
	return "exclusive"
}
