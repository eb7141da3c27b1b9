package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/keeper"
	"github.com/holdfast-lock/holdfast/open"
)

const aboutCheck = `Show whether this user's hold of NAME still holds the lock, and for how long at least. The exit code
is 76 if it does not: the lock was lost, its time is over, it was released or handed off, or the
keeper was killed.

The keeper answers, and asks no store: it learns within a third of the TTL that the lock was
broken, and knows at once that a lease has expired. If it is stopped, it does not answer: the exit
code is 69. If "holdfast revoke" has asked for the lock, check says so on standard error. As for
"holdfast release", the hold is the one in HOLDFAST_HOLD, or the one that was made for this shell or
script.`

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check [NAME]",
		Short: "Show whether a hold still holds its lock",
		Long:  aboutCheck,
		Example: `  holdfast check && ./next-step.sh
  holdfast check deploy/prod || exit`,
		Args: atMostOne,
		RunE: ours(func(_ *cobra.Command, args []string) error {
			return a.askKeeper(args, keeper.Check, func(h *keeper.Answer) error {
				switch h.State {
				case keeper.Offered:
					return lostHold("%s was handed off: whoever has the ticket may hold it", show(h.Name))
				case keeper.Passed:
					return lostHold("%s was handed off, and %s", show(h.Name), passedOn)
				}
				if h.Asked != "" {
					a.say("%s: asked to release it by %s", show(h.Name), h.Asked)
				}
				_, err := fmt.Fprintf(a.stdout, "%s is held, token %d, for at least %s\n", show(h.Name), h.Token,
					rough(h.Left.Truncate(time.Second)))
				return err
			})
		}),
	}
}

const aboutRelease = `End this user's hold of NAME: release the lock, and grant it to the next waiter. The exit code is
76 if the lock was not held any more, so that what was done under it may have overlapped with
another holder. It is 69 if the store does not confirm the release; the lock then ends when its
lease expires.

The hold is the one in HOLDFAST_HOLD, as hold prints it; NAME may then be left out. Without it, the
hold is the one that was made for this shell or script, or a process above it ("--while"). One with
--max-hold alone was made for none, so it needs HOLDFAST_HOLD. A command that knows only the name
never ends the hold of another job of the same user.

A hold that was handed off, and that nobody has adopted, is released, too. After an adoption
nothing is left to release: release says so, and exits with 0. What was done before the hand-off
was done under the lock, and "holdfast adopt" learns of what happens later.`

// passedOn is what a keeper knows of a lock after its offer: a store does not say whether the adopter
// has released it since.
const passedOn = "was adopted, or has ended since"

func (a *app) releaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "release [NAME]",
		Short: "End a hold, and release its lock",
		Long:  aboutRelease,
		Example: `  holdfast release
  holdfast release deploy/prod`,
		Args: atMostOne,
		RunE: ours(func(_ *cobra.Command, args []string) error {
			return a.askKeeper(args, keeper.Release, func(h *keeper.Answer) error {
				switch h.State {
				case keeper.Passed:
					_, err := fmt.Fprintf(a.stdout, "%s, token %d, was handed off, and %s: nothing is left to release\n", show(h.Name),
						h.Token, passedOn)
					return err
				case keeper.Unsure:
					return &failure{exitUnavailable,
						fmt.Errorf("%s: the store has not confirmed the release; the lock expires by itself: %s", show(h.Name), h.Why)}
				}
				_, err := fmt.Fprintf(a.stdout, "released: %s, token %d\n", show(h.Name), h.Token)
				return err
			})
		}),
	}
}

const aboutHandOff = `Offer the lock of a hold to another process, also on another machine, and print the ticket with
which "holdfast adopt" takes it over. Nobody else gets the lock in between, and the fencing token
stays the same. The keeper renews the lock until somebody has adopted it, or until the end of the
hold, as --max-hold or --while of "holdfast hold" have set it.

A ticket is good for one adoption. Whoever may use the store and has the ticket can take the
lock with it, so treat it as a password: write it to a file that only its reader may read, or to
the secrets of a CI system. It is of no use to users who may not use the store.`

func (a *app) handOffCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "handoff [NAME]",
		Short:   "Offer the lock of a hold to another process",
		Long:    aboutHandOff,
		Example: `  (umask 077; holdfast handoff deploy/prod >ticket)`,
		Args:    atMostOne,
		RunE: ours(func(_ *cobra.Command, args []string) error {
			return a.askKeeper(args, keeper.HandOff, func(h *keeper.Answer) error {
				if h.Ticket == "" {
					return &failure{exitRefused, fmt.Errorf("%s was handed off before; it has one ticket", show(h.Name))}
				}
				_, err := fmt.Fprintln(a.stdout, h.Ticket)
				return err
			})
		}),
	}
}

// lostHold returns an error about a lock that is not held any more.
func lostHold(format string, args ...any) error {
	return &failure{exitLost, fmt.Errorf(format, args...)}
}

// askKeeper finds the hold, asks its keeper, and calls f with the answer if the lock had not ended.
func (a *app) askKeeper(args []string, op keeper.Op, f func(*keeper.Answer) error) error {
	name := ""
	if len(args) > 0 {
		if name = args[0]; name == "" || checkNames(name) != nil {
			return checkNames(name)
		}
	}
	socket, err := a.findHold(name)
	if err != nil {
		return err
	}
	if op == keeper.Release {
		warning := time.AfterFunc(keeperSilence, func() {
			a.say("%s: its keeper has not confirmed the release for %v; it waits for the store, or it is stopped",
				holdName(name, socket), keeperSilence)
		})
		defer warning.Stop()
	}
	h, err := keeper.Ask(socket, op)
	switch {
	case errors.Is(err, keeper.ErrGone) && op == keeper.Release:
		keeper.Tidy(socket)
		fallthrough
	case errors.Is(err, keeper.ErrGone):
		return lostHold("%s is not held: its keeper has ended, by a release or because it was killed", holdName(name, socket))
	case errors.Is(err, keeper.ErrForeign):
		return &failure{exitRefused, err}
	case err != nil:
		return silentKeeper(holdName(name, socket), err)
	case h.State == keeper.Ended:
		return lostHold("%s is not held any more: %s", show(h.Name), h.Why)
	}
	return f(h)
}

// silentKeeper returns the error about a keeper that does not answer, with what to do.
func silentKeeper(name string, err error) error {
	var s *keeper.Silence
	if errors.As(err, &s) {
		kill := "kill its process"
		if s.PID > 0 {
			kill = fmt.Sprintf("kill -KILL %d", s.PID)
		}
		what := "; it may be stopped"
		if s.Runs {
			what = ""
		}
		err = fmt.Errorf("%w%s. To end it: %s; the lease then ends by its TTL", err, what, kill)
	}
	return &failure{exitUnavailable, fmt.Errorf("%s: %w", name, err)}
}

// holdName names a hold for people.
func holdName(name, socket string) string {
	if lock := os.Getenv(envLock); name == "" && keeper.Of(socket, lock) {
		name = lock
	}
	if name == "" {
		return show(socket)
	}
	return show(name)
}

// findHold returns the socket of the hold of a name: the one in the environment, or else the one that
// was made for an ancestor of this process. Another job of this user may hold the same name, and
// must not lose it to a command that only knows the name.
func (a *app) findHold(name string) (socket string, err error) {
	given := os.Getenv(envHold)
	switch {
	case name == "" && given == "":
		return "", usagef("the name of the lock is missing, and %s is not set", envHold)
	case name == "" || given != "" && keeper.Of(given, name):
		return given, nil
	}
	list, err := keeper.Find(name)
	if err != nil {
		return "", &failure{exitConfig, fmt.Errorf("the folder of holds: %w", err)}
	}
	store, _ := open.WithoutPassword(a.url())
	var dead, passed, ours, others []string
	var silent error
	for _, s := range list {
		switch h, err := keeper.Ask(s, keeper.Check); {
		case errors.Is(err, keeper.ErrGone):
			dead = append(dead, s)
		case err != nil:
			silent = err
			others = append(others, s)
		case h.Store == store && keeper.Ancestor(h.While) && h.State == keeper.Passed:
			passed = append(passed, s)
		case h.Store == store && keeper.Ancestor(h.While):
			ours = append(ours, s)
		default:
			others = append(others, fmt.Sprintf("%s (at %s)", s, cmp.Or(h.Store, "the file of this user")))
		}
	}
	if len(ours) == 0 { // what was handed off counts until there is a new hold
		ours = passed
	}
	switch {
	case len(ours) == 1:
		return ours[0], nil
	case len(ours) > 1:
		return "", usagef("there are %d holds of %s: set %s to one of %s", len(ours), show(name), envHold,
			strings.Join(ours, ", "))
	case silent != nil:
		return "", silentKeeper(show(name), silent)
	case len(others) > 0:
		return "", usagef("%s is held by this user, but not for this shell or script at this store: set %s to %s",
			show(name), envHold, strings.Join(others, " or "))
	case len(dead) > 0:
		return dead[0], nil
	}
	return "", lostHold("%s is not held by a hold of this user: it was released, its keeper has ended, or there was none", show(name))
}
