package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

const aboutBreak = `End the grant of NAME that has token T, which "holdfast info NAME" shows, and pass the
lock on. The token makes sure that nobody is hit who got the lock since you looked.

The holder learns of it at its next renewal, within a third of its TTL, and may go on
working until then. What it still writes is refused only by resources that check tokens.
A program that shares the store and is not holdfast's (Curator, say) may never learn of it:
end it first.`

func (a *app) breakCommand() *cobra.Command {
	var token uint64
	c := &cobra.Command{
		Use:   "break NAME --token T",
		Short: "Take a lock away from its holder",
		Long:  aboutBreak,
		Args:  exactly("the name of the lock"),
		RunE: ours(func(c *cobra.Command, args []string) error {
			if token == 0 {
				return usagef("--token is missing: which grant is to end? See holdfast info %s", show(args[0]))
			}
			return a.breakLock(args[0], token)
		}),
	}
	c.Flags().Uint64Var(&token, "token", 0, "fencing `TOKEN` of the grant to end")
	return c
}

func (a *app) breakLock(name string, token uint64) error {
	ctx := context.Background()
	return a.with(ctx, holdfast.Config{}, func(s *session) error {
		r, err := s.Inspect(ctx, name)
		if err != nil {
			return err
		}
		err = s.Break(ctx, name, token)
		switch i := slices.IndexFunc(r.Holders, func(h holdfast.Holder) bool { return h.Token == token }); {
		case errors.Is(err, holdfast.ErrGone):
			return fmt.Errorf("%s: no grant has token %d (any more); see holdfast info: %w", show(name), token, err)
		case err != nil:
			return err
		case i < 0:
			_, err = fmt.Fprintf(a.stdout, "broken: %s, token %d\n", show(name), token)
		default:
			h := &r.Holders[i]
			_, err = fmt.Fprintf(a.stdout, "broken: %s, token %d, %s\n%s\n", show(name), token, describe(h), aftermath(h))
		}
		return err
	})
}

// aftermath is what the holder of a grant that was broken may still do.
func aftermath(h *holdfast.Holder) string {
	switch {
	case h.Kept:
		return "It was kept for a time only; nobody held it."
	case foreign(h):
		return "Its holder is not holdfast's: nothing tells it, and it may go on as long as it likes. End it."
	}
	return fmt.Sprintf("Its holder may go on until it notices, within %s.", rough(h.Left))
}
