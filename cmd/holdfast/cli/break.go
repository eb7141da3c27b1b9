package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

const aboutBreak = `End the grant of NAME that has token T, and grant the lock to the next waiter.
"holdfast info NAME" shows the token. It protects a client that got the lock since you looked.
A Go program that passes a lock among its calls gives each a token of its own: take the one of info.
A name that is only kept for a minimum hold (--every, --min-hold) becomes free: nobody holds it.

The holder learns of it at its next renewal, normally within a third of its TTL (5s by
default). If it cannot reach the store, it goes on until its lease ends. Only resources that
check tokens refuse its late writes. Another program that shares the store (Curator, for example)
may never learn of it: end that program first.

The store keeps who broke the lock, when, and the --reason. The holder's message has them, and so
has "holdfast history NAME". "holdfast revoke NAME" only asks the holder.`

func (a *app) breakCommand() *cobra.Command {
	var token uint64
	var reason string
	c := &cobra.Command{
		Use:   "break NAME --token T",
		Short: "Take a lock away from its holder",
		Long:  aboutBreak,
		Args:  exactly("the name of the lock"),
		RunE: ours(func(c *cobra.Command, args []string) error {
			if !c.Flags().Changed("token") {
				return usagef("--token is missing: holdfast info %s shows the token of each grant", typed(args[0]))
			}
			if token == 0 {
				return usagef("--token 0: no grant has it; holdfast info %s shows the token of each grant", typed(args[0]))
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			return a.breakLock(args[0], token, reason)
		}),
	}
	c.Flags().Uint64Var(&token, "token", 0, "fencing `TOKEN` of the grant to end")
	c.Flags().StringVar(&reason, "reason", "", reasonUsage)
	_ = c.RegisterFlagCompletionFunc("token", a.completeTokens)
	return c
}

func (a *app) breakLock(name string, token uint64, reason string) error {
	ctx := context.Background()
	return a.existing(ctx, func(s *session) error {
		r, err := s.Inspect(ctx, name)
		if err != nil {
			return err
		}
		err = s.noted(s.Break(ctx, name, token, reason))
		switch i := slices.IndexFunc(r.Holders, func(h holdfast.Holder) bool { return h.Token == token }); {
		case errors.Is(err, holdfast.ErrGone):
			return &failure{exitRefused, fmt.Errorf("%s: no grant has token %d%s; see holdfast info", show(name), token,
				partly(&r))}
		case err != nil:
			return err
		case i >= 0 && r.Holders[i].Kept:
			_, err = fmt.Fprintf(a.stdout, "freed: %s, token %d, was %s\n", show(name), token, describe(&r.Holders[i]))
		case i < 0:
			_, err = fmt.Fprintf(a.stdout, "broken: %s, token %d\n", show(name), token)
		default:
			h := &r.Holders[i]
			_, err = fmt.Fprintf(a.stdout, "broken: %s, token %d, %s\n%s\n", show(name), token, describe(h), aftermath(h))
		}
		return err
	})
}

// partly says what becomes of grants at too few servers of a quorum.
func partly(r *holdfast.Record) string {
	if len(r.Partial) == 0 {
		return ""
	}
	return "; a grant at too few servers of the quorum ends by itself"
}

// aftermath says what the holder of a broken grant may still do.
func aftermath(h *holdfast.Holder) string {
	if foreign(h) {
		return "Its holder is another program, which holdfast cannot notify, and may go on. End that program."
	}
	return fmt.Sprintf("Its holder learns of it at its next renewal, normally within a third of its TTL; if it cannot "+
		"reach the store, it may go on for up to %s.", rough(h.Left))
}
