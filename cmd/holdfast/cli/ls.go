package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

func (a *app) lsCommand() *cobra.Command {
	var out format
	c := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the locks in use, with who holds them",
		Args:  atMostOne,
		RunE: ours(func(c *cobra.Command, args []string) error {
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			return a.ls(prefix, out)
		}),
	}
	out.register(c, recordFormats...)
	return c
}

func (a *app) ls(prefix string, out format) error {
	ctx := context.Background()
	return a.existing(ctx, func(s *session) error {
		records := []recordJSON{}
		rows := [][]string{{"NAME", "USE", "HOLDER", "PROGRAM", "HELD", "LEASE", "WAITING"}}
		if out == "wide" {
			rows[0] = append(rows[0], "KIND", "TOKEN", "NOTE", "LABELS")
		}
		for r, err := range s.Locks(ctx, prefix) {
			switch {
			case err != nil:
				return err
			case out == "jsonl":
				err = writeJSON(a.stdout, toJSON(&r), false)
			case out == "json":
				j := toJSON(&r)
				j.Schema = "" // the list has it once
				records = append(records, j)
			case out == "name":
				_, err = fmt.Fprintln(a.stdout, show(r.Name))
			default:
				rows = append(rows, row(&r, out == "wide"))
			}
			if err != nil {
				return err
			}
		}
		switch {
		case out == "json":
			return writeJSON(a.stdout, struct {
				Schema string       `json:"schema"`
				Locks  []recordJSON `json:"locks"`
			}{schema, records}, true)
		case len(rows) > 1:
			return table(a.stdout, rows)
		case out == "table" || out == "wide":
			fmt.Fprintln(a.stderr, "no lock is in use")
		}
		return nil
	})
}

// row returns a record in one line, with the first holder only.
func row(r *holdfast.Record, wide bool) []string {
	holder, program, held, left, note, labels := "-", "-", "-", "-", "-", "-"
	if len(r.Holders) > 0 {
		h := &r.Holders[0]
		holder, held, left = who(h), rough(time.Since(h.Since)), leaseLeft(h)
		if h.Kept {
			holder = "(kept) " + holder
		}
		if n := len(r.Holders) - 1; n > 0 {
			holder += fmt.Sprintf(" +%d", n)
		}
		program, note, labels = orDash(show(h.Program), h.Program), orDash(show(h.Note), h.Note), orDash(joined(h.Labels),
			joined(h.Labels))
	}
	cells := []string{show(r.Name), use(r), holder, program, held, left, strconv.Itoa(r.Waiting)}
	if r.Damaged != "" {
		cells = []string{show(r.Name), "damaged: " + oneLine(r.Damaged), holder, program, held, left, "-"}
	}
	if wide {
		cells = append(cells, orDash(r.Kind, r.Kind), tokenText(r.Token), note, labels)
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
