package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

func (a *app) infoCommand() *cobra.Command {
	var out format
	c := &cobra.Command{
		Use:   "info NAME",
		Short: "Show one lock: holders, tokens and waiters",
		Args:  exactly("the name of the lock"),
		RunE:  ours(func(c *cobra.Command, args []string) error { return a.info(args[0], out) }),
	}
	out.register(c, recordFormats...)
	return c
}

func (a *app) info(name string, out format) error {
	ctx := context.Background()
	return a.existing(ctx, func(s *session) error {
		r, err := s.Inspect(ctx, name)
		if err != nil {
			return err
		}
		r.Name = name // a store may leave it out if the name is not in use
		switch out {
		case "json", "jsonl":
			return writeJSON(a.stdout, toJSON(&r), out == "json")
		case "name":
			_, err := fmt.Fprintln(a.stdout, show(name))
			return err
		}
		return a.describe(&r, out == "wide")
	})
}

func (a *app) describe(r *holdfast.Record, wide bool) error {
	if r.Kind == "" {
		_, err := fmt.Fprintf(a.stdout, "%s is not in use\n", show(r.Name))
		return err
	}
	rows := [][]string{{"name", show(r.Name)}, {"kind", r.Kind}, {"token", strconv.FormatUint(r.Token, 10)},
		{"waiting", strconv.Itoa(r.Waiting)}}
	switch r.Kind {
	case "semaphore":
		rows = append(rows, []string{"permits", fmt.Sprintf("%d of %d in use", used(r), r.Limit)})
		if r.LimitSet {
			rows = append(rows, []string{"limit", `set by an operator; "sem limit --clear" removes it`})
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
	}{{"HOLDER", "HELD", "LEASE", r.Holders}, {"WAITER", "WAITS", "PLACE", r.Waiters}} {
		if len(part.list) == 0 {
			continue
		}
		fmt.Fprintln(a.stdout)
		rows := [][]string{{part.title, "MODE", "PROGRAM", part.since, part.left, "TOKEN", "NOTE", "LABELS"}}
		if wide {
			rows[0] = append(rows[0], "ID")
		}
		for _, h := range part.list {
			rows = append(rows, detail(r.Kind, &h, wide))
		}
		if err := table(a.stdout, rows); err != nil {
			return err
		}
	}
	return nil
}

func detail(kind string, h *holdfast.Holder, wide bool) []string {
	name := who(h)
	if h.Kept {
		name = "(kept) " + name
	}
	cells := []string{
		name, mode(kind, h), orDash(show(h.Program), h.Program), rough(time.Since(h.Since)), leaseLeft(h), tokenText(h.Token),
		orDash(show(h.Note), h.Note), orDash(joined(h.Labels), joined(h.Labels)),
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
