package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/driver"
)

func (a *app) semCommand() *cobra.Command {
	c := group("sem", `Change a semaphore ("run --limit" uses one, info shows it)`)
	c.AddCommand(&cobra.Command{
		Use:   "limit NAME M",
		Short: "Change how many permits a semaphore in use has",
		Long: `Change how many permits the semaphore NAME has. A lower limit takes nothing from holders;
nothing is granted until they fit again. Waiters keep waiting under the new limit. A new
request with another limit is refused.

The first holder sets the limit, and the end of the last one forgets it. So a semaphore that
is not in use has no limit to change, and the command is refused (exit code 77).`,
		Args: exactly("the name of the semaphore", "the number of permits"),
		RunE: ours(func(c *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 1 || n > driver.MaxLimit {
				return usagef("%s is not a number of permits: allowed are 1 to %d", show(args[1]), driver.MaxLimit)
			}
			return a.setLimit(args[0], n)
		}),
	})
	return c
}

// group returns a command that only has subcommands.
func group(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: commandsOnly,
		RunE: onlyOthers,
	}
}

func onlyOthers(c *cobra.Command, _ []string) error { return usagef("say what to do%s", helpHint(c)) }

func (a *app) setLimit(name string, n int) error {
	ctx := context.Background()
	return a.existing(ctx, func(s *session) error {
		switch err := s.SetLimit(ctx, name, n); {
		case errors.Is(err, holdfast.ErrGone):
			return &failure{exitRefused, fmt.Errorf("%s is not in use: its first holder sets the limit", show(name))}
		case err != nil:
			return err
		}
		_, err := fmt.Fprintf(a.stdout, "%s: the limit is now %d\n", show(name), n)
		return err
	})
}
