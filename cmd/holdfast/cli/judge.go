package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/verify"
)

const aboutJudge = `Judge histories that programs have recorded: of any lock with leases, in any language.

A history has one JSON object a line; docs/history.md of holdfast describes the format. Several
files are merged by time. "-" is the standard input. A folder stands for the .jsonl files in it
(without violation.jsonl), such as those that "holdfast verify --keep" leaves.

The report is that of verify. Like verify, judge calls a history without enough grants and faults
inconclusive; --min-faults 0 judges one without any. What a deployment does not promise belongs
into --except.

Exit codes: 0 clean: everything was checked and nothing was found; 1 a promise was broken; 2
inconclusive: the history proves nothing, or its events contradict each other. 64 wrong usage, a
file that cannot be read, or a line that is not an event.`

// judgeFlags are the flags of judge.
type judgeFlags struct {
	out    format
	html   string
	except []string
	o      history.Options
}

func (a *app) judgeCommand() *cobra.Command {
	var f judgeFlags
	c := &cobra.Command{
		Use:   "judge FILE...",
		Short: "Judge recorded histories of any lock",
		Long:  aboutJudge,
		Example: `  holdfast judge history.jsonl
  holdfast judge worker-*.jsonl --except L3 -o json
  collect | holdfast judge - --min-faults 0`,
		Args: atLeastOne("a file"),
		RunE: ours(func(c *cobra.Command, args []string) error {
			if err := positive(c, "slack", "min-grants"); err != nil {
				return err
			}
			return a.judge(c, &f, args)
		}),
	}
	f.out.register(c, "text", "json")
	flags := c.Flags()
	flags.StringVar(&f.html, "html", "", htmlUsage)
	durationVar(flags, &f.o.Slack, "slack", time.Second, slackUsage)
	durationVar(flags, &f.o.Margin, "margin", 0,
		"how long before the end of its TTL a lease counts as over (default a tenth of the TTL, at most 15s)")
	durationVar(flags, &f.o.Notice, "notice", 25*time.Millisecond,
		"how late a program may notice that its lease was lost, if it does not know since when")
	flags.StringSliceVar(&f.except, "except", nil, exceptUsage)
	flags.IntVar(&f.o.MinGrants, "min-grants", verify.MinGrants, "a history with fewer grants is inconclusive")
	flags.IntVar(&f.o.MinFaults, "min-faults", verify.MinFaults, "a history with fewer faults is inconclusive")
	return c
}

// none is a duration of history.Options that is zero. There, 0 means the default.
const none = -1

func (a *app) judge(c *cobra.Command, f *judgeFlags, paths []string) error {
	for flag, d := range map[string]*time.Duration{"margin": &f.o.Margin, "notice": &f.o.Notice} {
		switch {
		case *d < 0:
			return usagef("--%s %v: it must not be negative", flag, *d)
		case *d == 0 && c.Flags().Changed(flag):
			*d = none
		}
	}
	if f.o.MinFaults < 0 {
		return usagef("--min-faults %d: it must not be negative", f.o.MinFaults)
	}
	for i, path := range paths {
		if slices.Contains(paths[:i], path) {
			return usagef("%s is named twice", show(path))
		}
	}
	var err error
	if f.o.Except, err = exceptions(f.except); err != nil {
		return err
	}
	page, err := createPage("--html", f.html)
	if err != nil {
		return err
	}
	defer page.discard()
	events, err := verify.Read(paths...)
	if err != nil {
		return &failure{exitUsage, fmt.Errorf("reading histories: %w", err)}
	}
	return a.verdict(verify.Judge(events, f.o), f.out, page)
}
