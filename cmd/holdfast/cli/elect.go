package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

// electOptions are the flags of elect.
type electOptions struct {
	taskOptions
	name    string
	address string
}

const aboutElect = `Campaign in the election NAME, run COMMAND while this process leads, and exit with
COMMAND's exit code when it ends by itself. The next candidate in the queue then leads.

The leadership is lost when an operator breaks it, or when the store does not answer for too
long. holdfast then ends COMMAND and its process group before anybody else can lead, as
"holdfast run" does. When no process is left in the group, holdfast campaigns again. It also
keeps campaigning while the store cannot be reached, but not at its start: then the exit code is
69, so let the service manager start it again. INT, TERM and QUIT that arrive while COMMAND runs
are passed on to it; holdfast does not campaign again after them.

With --on-revoke SIGNAL a request by "holdfast revoke" makes this candidate resign: COMMAND gets
the signal, and when it has ended, holdfast campaigns again, behind the candidates that wait.

COMMAND runs as under "holdfast run", with the same environment. HOLDFAST_TOKEN is the term,
larger for every later leader. "holdfast leader NAME" shows who leads.`

func (a *app) electCommand() *cobra.Command {
	o := &electOptions{}
	c := &cobra.Command{
		Use:   "elect [flags] NAME -- COMMAND [ARG...]",
		Short: "Run a command while leading an election",
		Long:  aboutElect,
		Example: `  holdfast elect --name $HOSTNAME --address 10.0.0.7:8080 api -- ./serve
  holdfast leader api`,
		RunE: ours(func(c *cobra.Command, args []string) error {
			name, argv, err := o.check(c, args)
			if err != nil {
				return err
			}
			return a.elect(o, name, argv)
		}),
	}
	o.register(c)
	c.Flags().
		StringVar(&o.name, "name", "",
			"the name of this candidate, as leader shows it (default: command, user, host and process)")
	c.Flags().StringVar(&o.address, "address", "", "where to reach this candidate when it leads, as leader shows it")
	return c
}

// elect runs argv each time that this process leads, until argv ends by itself.
func (a *app) elect(o *electOptions, name string, argv []string) error {
	if err := checkNames(name); err != nil {
		return err
	}
	t, err := a.task(&o.taskOptions, argv)
	if err != nil {
		return err
	}
	if a.url() == "" {
		a.say("no store is named, so all candidates are processes of this user on this machine; --store or %s names one for several machines",
			envURL)
	}
	return t.with(func(s *session) error {
		for silent := false; ; { // whether the store has not answered
			h, err := t.take(func(ctx context.Context) (*hold, error) { return t.campaign(ctx, s, o, name) })
			if isOutage(err) {
				if !silent {
					a.say("%s; still campaigning", oneLine(err.Error()))
				}
				silent = true
				continue
			}
			if err != nil {
				return err
			}
			silent = false
			result, err := t.under(s, h, 0, 0)
			switch {
			case result.Stuck, !result.Lost && !result.Revoked:
				return err
			case result.Asked != 0:
				return signaled{result.Asked}
			}
			a.say("%s: campaigning again", show(name))
		}
	})
}

// campaign waits until this process leads.
func (t *task) campaign(ctx context.Context, s *session, o *electOptions, name string) (*hold, error) {
	if err := s.waitsForItself(ctx, name, 1, 0, false); err != nil {
		return nil, err
	}
	opts := []holdfast.Option{holdfast.Candidate(o.name, o.address)}
	if o.note != "" {
		opts = append(opts, holdfast.Note(o.note))
	}
	var l *holdfast.Lease
	err := t.line.during(ctx, s, name, func(ctx context.Context) (err error) {
		l, err = s.Election(name, opts...).Campaign(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &hold{lease: l, parts: []*holdfast.Lease{l}}, nil
}
