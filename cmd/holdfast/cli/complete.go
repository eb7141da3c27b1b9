package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/open"
)

// The limits of what a shell asks for while its user waits for a completion.
const (
	completeLimit = time.Second
	completeMost  = 200 // names
)

// complete makes the shell complete the names of locks, for all commands that take one.
func (a *app) complete(c *cobra.Command) {
	if words := strings.Fields(c.Use); slices.Contains(words, "NAME") || slices.Contains(words, "[PREFIX]") {
		c.ValidArgsFunction = a.completeNames
	}
	for _, sub := range c.Commands() {
		a.complete(sub)
	}
}

// completeNames completes the name of a lock from the names in use. After the name there is nothing,
// or a command.
func (a *app) completeNames(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && strings.Contains(c.Use, "COMMAND") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	if len(args) == 0 {
		a.lookUp(func(ctx context.Context, s *session) {
			for r, err := range s.Locks(ctx, begun) {
				if err != nil || len(names) == completeMost {
					return
				}
				// A shell splits and expands what is not plain.
				if shellWord(r.Name) == r.Name {
					names = append(names, r.Name)
				}
			}
		})
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeTokens completes the token of a grant of the name that is given, with its holder.
func (a *app) completeTokens(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	var tokens []string
	if len(args) == 1 {
		a.lookUp(func(ctx context.Context, s *session) {
			r, err := s.Inspect(ctx, args[0])
			if err != nil {
				return
			}
			for i := range r.Holders {
				if t := strconv.FormatUint(r.Holders[i].Token, 10); strings.HasPrefix(t, begun) {
					tokens = append(tokens, t+"\t"+oneLine(who(&r.Holders[i])))
				}
			}
		})
	}
	return tokens, cobra.ShellCompDirectiveNoFileComp
}

// lookUp calls f with an open store, if that opens soon. It makes no file, and reports no error: the
// user has not asked for anything yet.
func (a *app) lookUp(f func(context.Context, *session)) {
	if open.Exists(a.url()) != nil || a.url() == "" && !open.HasDefault() {
		return
	}
	a.opens = completeLimit
	ctx, cancel := context.WithTimeout(context.Background(), completeLimit)
	defer cancel()
	s, err := a.connect(ctx, holdfast.Config{})
	if err != nil {
		return
	}
	f(ctx, s)
	_ = s.close()
}
