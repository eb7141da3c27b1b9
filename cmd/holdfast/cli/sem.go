package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

func (a *app) semCommand() *cobra.Command {
	c := group("sem", `Change a semaphore ("run --limit" uses one, info shows it)`)
	c.AddCommand(&cobra.Command{
		Use:   "limit NAME M",
		Short: "Change how many permits a semaphore in use has",
		Long: `Change how many permits the semaphore NAME has. Lowering it takes nothing from holders;
nothing is granted until they fit again. Who waits goes on under the new limit; who comes
with another one is refused.`,
		Args: cobra.ExactArgs(2),
		RunE: ours(func(c *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 1 {
				return usagef("limit %s: expected a positive number", show(args[1]))
			}
			return a.setLimit(args[0], n)
		}),
	})
	return c
}

// group is a command that only has others under it.
func group(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return usagef("say what to do; see %s --help", c.CommandPath())
		},
	}
}

func (a *app) setLimit(name string, n int) error {
	ctx := context.Background()
	return a.with(ctx, holdfast.Config{}, func(s *session) error {
		switch err := s.SetLimit(ctx, name, n); {
		case errors.Is(err, holdfast.ErrGone):
			return fmt.Errorf("%s is not in use: who takes it first says its limit: %w", show(name), err)
		case err != nil:
			return err
		}
		_, err := fmt.Fprintf(a.stdout, "%s: the limit is %d now\n", show(name), n)
		return err
	})
}
