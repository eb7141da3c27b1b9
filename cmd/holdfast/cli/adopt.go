package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/storeurl"
)

// adoptOptions are the flags of adopt.
type adoptOptions struct {
	taskOptions
	file    string
	maxHold time.Duration
}

const aboutAdopt = `Take over the lock that "holdfast handoff" or a program has offered, run COMMAND while holding it,
and exit with COMMAND's exit code. Nobody else has the lock in between, and the fencing token
stays the same. COMMAND runs as under "holdfast run", with the same environment; it is ended if
the lock is lost. The lock is released when COMMAND has ended.

The ticket comes from --ticket-file, from the variable HOLDFAST_TICKET, which COMMAND does not
get, or from the argument TICKET; - reads one line of standard input. Every user of the machine
can see arguments. A ticket is good for one adoption: with one that was used, or whose lock has
ended, the exit code is 77.`

func (a *app) adoptCommand() *cobra.Command {
	o := &adoptOptions{}
	c := &cobra.Command{
		Use:   "adopt [flags] [TICKET] -- COMMAND [ARG...]",
		Short: "Take over a lock by a ticket, and run a command while holding it",
		Long:  aboutAdopt,
		Example: `  holdfast adopt --ticket-file ticket -- ./deploy.sh
  holdfast handoff deploy/prod | holdfast adopt - -- ./deploy.sh`,
		RunE: ours(func(c *cobra.Command, args []string) error {
			ticket, argv, err := o.check(c, args)
			if err != nil {
				return err
			}
			return a.adopt(o, ticket, argv)
		}),
	}
	o.register(c)
	f := c.Flags()
	f.StringVar(&o.file, "ticket-file", "", "read the ticket from `FILE`, which no other user may read")
	durationVar(f, &o.maxHold, "max-hold", 0, "end COMMAND, and release the lock, after this long")
	return c
}

// check finds the ticket and the command.
func (o *adoptOptions) check(c *cobra.Command, args []string) (ticket string, argv []string, err error) {
	if err := firstOf(positive(c, "max-hold"), atMost(c, "max-hold", o.maxHold, driver.MaxHold)); err != nil {
		return "", nil, err
	}
	dash := c.ArgsLenAtDash()
	switch {
	case dash < 0 || dash == len(args):
		return "", nil, usagef("the command is missing: %s", c.UseLine())
	case dash > 1:
		return "", nil, usagef("-- needs at most one ticket before it, not %d: %s", dash, c.UseLine())
	}
	// The rest is as for run, whose name is this ticket.
	words := args
	if dash == 0 {
		words = append([]string{""}, args...)
	}
	if err := o.checkCommand(c, words); err != nil {
		return "", nil, err
	}
	ticket, err = o.ticket(words[0])
	return ticket, words[1:], err
}

// ticket returns the ticket of the command line, of the file or of the environment.
func (o *adoptOptions) ticket(argument string) (string, error) {
	own := os.Getenv(envTicket)
	_ = os.Unsetenv(envTicket) // COMMAND does not get it
	switch {
	case argument != "" && o.file != "":
		return "", usagef("a ticket and --ticket-file contradict each other: only one of them is allowed")
	case argument == "-":
		return readLine(os.Stdin)
	case argument != "":
		return argument, nil
	case o.file != "":
		path, err := filepath.Abs(o.file)
		if err != nil {
			return "", err
		}
		ticket, err := storeurl.ReadPassword(path)
		if err != nil {
			return "", &failure{exitConfig, fmt.Errorf("--ticket-file: %s", strings.TrimPrefix(err.Error(), "password file "))}
		}
		return ticket, nil
	case own != "":
		return own, nil
	}
	return "", usagef("the ticket is missing: give --ticket-file, %s, or an argument", envTicket)
}

// readLine reads one line, and nothing beyond it: the rest of the input is for the command.
func readLine(from io.Reader) (string, error) {
	const most = 4096
	var line []byte
	for one := make([]byte, 1); len(line) < most; {
		n, err := from.Read(one)
		if n > 0 && one[0] == '\n' || err != nil && errors.Is(err, io.EOF) && len(line) > 0 {
			return strings.TrimSuffix(string(line), "\r"), nil
		}
		if err != nil {
			return "", usagef("no ticket on standard input: %v", err)
		}
		line = append(line, one[:n]...)
	}
	return "", usagef("no ticket on standard input: the line is longer than %d bytes", most)
}

// adopt runs argv while it holds the lock of a ticket.
func (a *app) adopt(o *adoptOptions, ticket string, argv []string) error {
	t, err := a.task(&o.taskOptions, argv)
	if err != nil {
		return err
	}
	return t.with(func(s *session) error {
		h, err := t.take(func(ctx context.Context) (*hold, error) {
			var opts []holdfast.Option
			if o.note != "" {
				opts = append(opts, holdfast.Note(o.note))
			}
			l, err := s.Adopt(ctx, ticket, opts...)
			if err != nil {
				return nil, s.notAdopted(err)
			}
			return &hold{lease: l, parts: []*holdfast.Lease{l}}, nil
		})
		if err != nil {
			return err
		}
		_, err = t.under(s, h, o.maxHold, 0)
		return err
	})
}

// notAdopted returns the error of an adoption with what is the matter.
func (s *session) notAdopted(err error) error {
	var e *holdfast.Error
	switch {
	case !errors.As(err, &e):
	case errors.Is(err, holdfast.ErrInvalid) && e.Name == "": // it could not be read
		return &worded{err.Error() + `; "holdfast handoff" prints it`, err}
	case errors.Is(err, holdfast.ErrGone):
		ctx, cancel := context.WithTimeout(context.Background(), waitLook)
		defer cancel()
		text := err.Error() + "; a ticket is good for one adoption, while its hold lasts"
		if r, err := s.Inspect(ctx, e.Name); err == nil {
			now := "nobody holds it"
			if len(r.Holders) > 0 {
				now = "it is " + describe(&r.Holders[0])
			}
			text += "; now " + now
		}
		return &worded{text, err}
	}
	return err
}
