// Package cli is the command line of holdfast: one file for each command, what they share
// in cli.go, exit.go and print.go.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/open"
	"github.com/holdfast-lock/holdfast/driver"
)

// How long a start, and an exit, wait for a store that does not answer, whatever the TTL.
const (
	openLimit   = 15 * time.Second
	openSilence = 3 * time.Second // before it is said that it does not answer
	closeLimit  = 3 * time.Second
)

// app is what the commands share.
type app struct {
	store  string // URL
	ttl    time.Duration
	stdout io.Writer
	stderr io.Writer
	die    syscall.Signal // what to end by in place of an exit code
}

// Main runs the command that args asks for and returns the exit code.
func Main(args []string) (code int) {
	out := &output{to: os.Stdout}
	a := &app{stdout: out, stderr: os.Stderr}
	defer func() {
		if p := recover(); p != nil {
			a.say("this is a bug: %v\n%s", p, debug.Stack())
			code = exitBug
		}
	}()
	root := a.root()
	root.SetArgs(args)
	if code = a.exit(root.Execute()); code == 0 {
		code = a.exit(out.err) // help says nothing of it
	}
	if a.die != 0 {
		child.Die(a.die)
	}
	return code
}

const about = `holdfast runs a command while it holds a distributed lock, and shows who holds what.

  holdfast run deploy/prod -- ./deploy.sh       wait for the lock, then run
  holdfast run -n backup -- ./backup.sh         run only if nobody else does
  holdfast elect api -- ./serve                 run on one machine, elsewhere if that fails
  holdfast ls                                   who holds what
  holdfast doctor                               what of this deployment endangers locks
  holdfast lab run all                          see how widely used lock algorithms break
  holdfast verify --store URL                   try this deployment with real faults, and judge it

Stores (--store, or the variable HOLDFAST_URL, which keeps a password out of the list of
processes):

  (none)                     a file of the user's, shared by all processes of the user on
                             this machine: $XDG_STATE_HOME/holdfast/locks.db, or
                             ~/.local/state/holdfast/locks.db
  sqlite:PATH                another file
  redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss://..., redis+unix:///PATH
      with ?replicas=N a lock counts only once N replicas of the server have it, within
      &replica-timeout=500ms (at most a third of --ttl); else nobody gets it
  redis+sentinel://HOST[:PORT][,HOST...]/MASTER[/DB], rediss+sentinel://...
  redis+cluster://HOST[:PORT][,HOST...], rediss+cluster://...
  redis+quorum://HOST,HOST,HOST[,...][?quarantine=1m], rediss+quorum://...
  zookeeper://[USER:PASSWORD@]HOST[:PORT][,HOST...][/ROOT], zookeepers://...
  mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE (MySQL and MariaDB), after "holdfast init"
  postgres://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE], after "holdfast init"
  memory:                    this process alone, for trying things out

Exit codes: those of the command, 128+N if signal N ended it, and
  75  busy, or the wait was over (-E chooses another, --skip-ok makes it 0); nobody leads
  76  the lock was lost, and the command was made to end
  69  the store cannot be reached         64  wrong usage, or it would wait for itself
  77  the store refuses                   70  a bug in holdfast
  78  wrong configuration (URL, TTL, name, a name in use as another kind of lock)
  74  the output cannot be written
  126 the command cannot be run           127 it was not found
  1   "holdfast doctor" found what endangers locks, "holdfast lab" what is not as documented,
      "holdfast verify" a promise that was broken; 2 if its run does not suffice to say`

func (a *app) root() *cobra.Command {
	c := &cobra.Command{
		Use:           "holdfast",
		Short:         "Run a command under a distributed lock",
		Long:          about,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       versionText(),
		Args:          commandsOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			return usagef("say what to do, for example: holdfast run NAME -- COMMAND; see holdfast help")
		},
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("store") && a.store == "" { // a variable that is not set, most likely
				return usagef("--store is empty: name a store, or leave the flag out for $%s or the file of the user's", envURL)
			}
			if a.ttl < driver.MinTTL || a.ttl > driver.MaxTTL {
				return &failure{exitConfig, fmt.Errorf("--ttl %s: allowed are %s to %s", span(a.ttl), span(driver.MinTTL), span(driver.MaxTTL))}
			}
			return nil
		},
	}
	c.SetVersionTemplate("holdfast {{.Version}}\n")
	c.SetOut(a.stdout)
	c.SetErr(a.stderr)
	c.SetFlagErrorFunc(flagError)
	c.PersistentFlags().StringVar(&a.store, "store", "", "where the locks are kept (`URL`; default $HOLDFAST_URL, else a file of the user's)")
	c.PersistentFlags().DurationVar(&a.ttl, "ttl", holdfast.DefaultTTL, "how long locks last after the last sign of life of their holder (ZooKeeper: the session timeout to ask for)")
	c.AddCommand(
		a.runCommand(), a.electCommand(), a.leaderCommand(), a.lsCommand(), a.infoCommand(),
		a.breakCommand(), a.semCommand(), a.latchCommand(), a.initCommand(), a.doctorCommand(), a.labCommand(),
		a.verifyCommand(), a.verifyWorkerCommand(), a.versionCommand(),
	)
	c.SetHelpCommand(helpCommand())
	c.InitDefaultCompletionCmd()
	for _, sub := range c.Commands() {
		if sub.Name() == "completion" { // else it shows its help for whatever is wrong
			sub.Args, sub.RunE = commandsOnly, onlyOthers
			for _, shell := range sub.Commands() {
				shell.Args = noArguments
			}
		}
	}
	return c
}

// url is the URL of the store that was asked for, "" for the embedded one.
func (a *app) url() string {
	if a.store != "" {
		return a.store
	}
	return os.Getenv(envURL)
}

// say writes one message for people. No password of the store's URL is in it.
func (a *app) say(format string, args ...any) {
	text := strings.TrimPrefix(fmt.Sprintf(format, args...), "holdfast: ") // the library says it too
	fmt.Fprintf(a.stderr, "holdfast: %s\n", open.Scrub(text, a.url()))
}

// session is an open store and a client of it.
type session struct {
	*holdfast.Client
	place string // of the store; see open.Store
	store *open.Store
	keep  bool // the end of this process is not to free what it holds

	diagnose   func(context.Context) error // why the store cannot be used, if it cannot
	sayPolling func()                      // says once why those who wait are not woken here, if they are not
}

// connect opens the store and a client. If cfg has no TTL, it gets the one asked for.
func (a *app) connect(ctx context.Context, cfg holdfast.Config) (*session, error) {
	cfg.TTL = a.ttl
	limited, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	word := time.AfterFunc(openSilence, func() {
		a.say("%s has not answered for %v; giving up after %v at the latest", a.where(), openSilence, openLimit)
	})
	defer word.Stop()
	began := time.Now()
	c, st, err := a.dial(limited, &cfg)
	switch {
	case err == nil:
	case ctx.Err() != nil, errors.Is(err, holdfast.ErrInvalid) && st != nil: // not the store's
		return nil, err
	default:
		return nil, a.unopened(err, time.Since(began))
	}
	return &session{Client: c, place: st.Place, store: st, diagnose: func(ctx context.Context) error {
		_, err := st.Diagnose(ctx, a.url(), a.ttl)
		return err
	}, sayPolling: sync.OnceFunc(func() {
		if reason := st.Polling(); reason != "" {
			a.say("whoever waits asks the store every 5 to 50 ms, since nobody can be woken: %s", reason)
		}
	})}, nil
}

// dial opens the store and a client. Without a client the store is closed; it is returned if it was opened.
func (a *app) dial(ctx context.Context, cfg *holdfast.Config) (*holdfast.Client, *open.Store, error) {
	st, err := open.Open(ctx, a.url())
	if err != nil {
		return nil, nil, err
	}
	c, err := holdfast.New(ctx, st, cfg)
	if err != nil {
		if cerr := st.Close(); cerr != nil {
			err = fmt.Errorf("%w; closing the store: %w", err, cerr)
		}
		return nil, st, err
	}
	return c, st, nil
}

// where names the store for people, before it is open.
func (a *app) where() string {
	if url, ok := open.WithoutPassword(a.url()); ok && url != "" {
		return "the store at " + url
	}
	return "the store"
}

// close ends the client and the store, within closeLimit.
func (s *session) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(s.Close(ctx), s.store.Close()) }()
	select {
	case err := <-closed:
		return err
	case <-time.After(2 * closeLimit):
		return context.DeadlineExceeded
	}
}

// with runs f with a client. What is wrong at the close is worth a word, but changes
// nothing about what f did.
func (a *app) with(ctx context.Context, cfg holdfast.Config, f func(*session) error) error {
	s, err := a.connect(ctx, cfg)
	if err != nil {
		return err
	}
	err = f(s)
	if s.keep {
		return err
	}
	silent := errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrUncertain)
	if cerr := s.close(); cerr != nil && !silent { // else it has been said
		a.say("closing the store: %s", oneLine(cerr.Error()))
	}
	return err
}
