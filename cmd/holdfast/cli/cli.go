// Package cli is the command line of holdfast. Each command has its file; cli.go, exit.go and
// print.go have what they share.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/open"
)

// Limits for opening and closing a store that does not answer, whatever the TTL.
const (
	openLimit     = 15 * time.Second
	lookLimit     = 8 * time.Second // of commands that only look; nobody's work waits for them
	openSilence   = 3 * time.Second // until a message says that the store is silent; Redis is given up after 2 s
	openLeast     = 3 * time.Second // of a short -w
	closeLimit    = 3 * time.Second
	keeperSilence = 2 * time.Second // until a message says that a keeper has not answered
)

// app is what the commands share.
type app struct {
	store   string // of --store
	profile string // of --profile
	ttl     time.Duration
	set     *settings // nil before they are known, and for commands without a store
	stdout  io.Writer
	stderr  io.Writer
	opens   time.Duration     // how long the store may take to open; 0: openLimit
	opened  func(*open.Store) // called when the store is open; may be nil
	keeps   bool              // others trust the leases of this process: they outlast its death
	die     syscall.Signal    // ends this process in place of an exit code, if not 0
}

// Main runs the command that args asks for and returns the exit code.
func Main(args []string) (code int) {
	out := &output{to: os.Stdout}
	a := &app{stdout: out, stderr: os.Stderr}
	defer func() {
		if p := recover(); p != nil {
			a.say("this is a bug: %v", p)
			_, _ = a.stderr.Write(debug.Stack())
			code = exitBug
		}
	}()
	root := a.root()
	root.SetArgs(args)
	if code = a.exit(root.Execute()); code == 0 {
		code = a.exit(out.err) // help does not report it
	}
	if a.die != 0 {
		child.Die(a.die)
	}
	return code
}

const about = `holdfast runs a command while it holds a distributed lock, and shows who holds what.

  holdfast run deploy/prod -- ./deploy.sh       wait for the lock, then run
  holdfast run -n backup -- ./backup.sh         run only if the lock is free
  holdfast elect api -- ./serve                 run on one machine; another takes over if it fails
  holdfast hold deploy                          in a terminal, hold a lock over several commands,
  holdfast release deploy                       until this one (for CI see "holdfast hold --help")
  holdfast ls                                   list the locks in use and their holders
  holdfast info deploy/prod                     show why a lock is taken, and what to do
  holdfast top                                  the same, as it changes, the most troubled first
  holdfast watch deploy/                        show who takes and frees them, as it happens
  holdfast history deploy/prod                  show who had it, who broke it, and why
  holdfast revoke deploy/prod                   ask the holder to release it
  holdfast doctor                               find settings of a store that endanger locks
  holdfast lab run all                          see how widely used lock algorithms break
  holdfast bench --store URL                    measure how fast its locks are
  holdfast verify --store URL                   test this deployment with real faults
  holdfast judge FILE                           judge a recorded history of any lock

Stores (--store, or the variable HOLDFAST_URL, which keeps a password out of the list of
processes):

  (none)                     a file that all processes of this user on this machine share:
                             $XDG_STATE_HOME/holdfast/locks.db, or
                             ~/.local/state/holdfast/locks.db
  sqlite:PATH                another file
  redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss://..., redis+unix:///PATH
      ?replicas=N grants a lock only if N replicas of the server record it within
      &replica-timeout=500ms (at most a third of --ttl)
      ?dialect=redisson shares locks with Java's Redisson (also with sentinels, or a Cluster);
      &mutex=fenced or &mutex=fair, and &semaphore=plain, choose among its kinds of locks
  redis+sentinel://HOST[:PORT][,HOST...]/MASTER[/DB], rediss+sentinel://...
  redis+cluster://HOST[:PORT][,HOST...], rediss+cluster://...
  redis+quorum://HOST,HOST,HOST[,...][?quarantine=1m], rediss+quorum://...
  zookeeper://[USER:PASSWORD@]HOST[:PORT][,HOST...][/ROOT], zookeepers://...
  mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE (MySQL and MariaDB), after "holdfast init"
  postgres://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE], after "holdfast init"
  memory:                    this process only, for trials

password-file=PATH takes the place of a password in a URL. "holdfast config" shows the settings in
force, and how profiles in a file name them.

Exit codes: that of the command, 128+N if signal N ended the command, and
  75  busy, or the wait timed out (-E chooses another, --skip-ok makes it 0); nobody leads
  76  the lock was lost, or the time of --max-hold or --lease is over: holdfast ended the command;
      check and release: a hold does not hold its lock any more
  69  the store cannot be reached         70  a bug in holdfast
  77  the store refuses
  64  wrong usage, or a lock that the surrounding run already holds
  78  wrong configuration (URL, TTL, name, a name in use as another kind of lock)
  74  the output cannot be written
  126 the command cannot be run           127 the command was not found
  1   "holdfast doctor" found a danger to locks, "holdfast lab" a result that is not as
      documented, "holdfast verify" or "judge" a broken promise; 2 if they were inconclusive`

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
			if needsSettings(c) {
				return a.resolve(c)
			}
			return checkTTL(a.ttl)
		},
	}
	c.SetVersionTemplate("holdfast {{.Version}}\n")
	c.SetOut(a.stdout)
	c.SetErr(a.stderr)
	c.SetFlagErrorFunc(flagError)
	c.SetHelpFunc(showHelp)
	c.PersistentFlags().StringVar(&a.store, "store", "",
		"where to keep the locks (`URL`; default $HOLDFAST_URL, else a file of this user)")
	c.PersistentFlags().StringVar(&a.profile, "profile", "",
		"use the settings of profile `NAME` (default $HOLDFAST_PROFILE; see holdfast config)")
	ttlVar(c.PersistentFlags(), &a.ttl, holdfast.DefaultTTL)
	c.AddCommand(
		a.runCommand(), a.electCommand(), a.leaderCommand(), a.lsCommand(), a.topCommand(), a.infoCommand(),
		a.waitCommand(), a.watchCommand(), a.historyCommand(), a.revokeCommand(), a.breakCommand(),
		a.semCommand(), a.latchCommand(), a.initCommand(), a.doctorCommand(), a.labCommand(), a.benchCommand(),
		a.verifyCommand(), a.verifyWorkerCommand(), a.judgeCommand(), a.manCommand(), a.versionCommand(),
		a.configCommand(), a.holdCommand(), a.checkCommand(), a.releaseCommand(), a.handOffCommand(),
		a.adoptCommand(), a.keeperCommand(), a.serveCommand(),
	)
	a.complete(c)
	c.SetHelpCommand(helpCommand())
	c.InitDefaultCompletionCmd()
	for _, sub := range c.Commands() {
		if sub.Name() == "completion" { // by itself it shows its help, whatever is wrong
			sub.Args, sub.RunE = commandsOnly, onlyOthers
			for _, shell := range sub.Commands() {
				shell.Args = noArguments
			}
		}
	}
	return c
}

const ttlUsage = "how long the store keeps a lock after its last renewal (ZooKeeper: the session timeout to ask for)"

// checkTTL returns an error for a --ttl that no store allows.
func checkTTL(ttl time.Duration) error {
	if ttl < driver.MinTTL || ttl > driver.MaxTTL {
		given := span(ttl)
		if ttl == math.MaxInt64 {
			given = "of more than 106751d"
		}
		return &failure{exitConfig, fmt.Errorf("--ttl %s: allowed are %s to %s", given, span(driver.MinTTL),
			span(driver.MaxTTL))}
	}
	return nil
}

// say writes one message for people, without the passwords of the store's URL.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.stderr, a.message(fmt.Sprintf(format, args...)))
}

// message returns text as a message of holdfast, without the passwords of the store's URL and
// without hidden characters.
func (a *app) message(text string) string {
	// Errors of the library begin with the prefix too.
	return "holdfast: " + replaceHidden(open.Scrub(strings.TrimPrefix(text, "holdfast: "), a.url()), escaped)
}

// bound bounds the opening of the store by the time of -w. A store that answers may need more than
// a short wait to open.
func (a *app) bound(wait seconds) {
	if wait.set && wait.d > 0 {
		a.opens = min(max(wait.d, openLeast), openLimit)
	}
}

// session is an open store and a client of it.
type session struct {
	*holdfast.Client
	place string // see open.Store
	store *open.Store
	keep  bool // do not close: the end of this process must not free its locks

	diagnose   func(context.Context) error // returns why the store cannot be used, or nil
	message    func(string) string         // see app.message
	say        func(string, ...any)        // see app.say
	sayPolling func()                      // reports once why waiters poll this store, if they do
}

// connect opens the store and a client with the TTL of --ttl.
func (a *app) connect(ctx context.Context, cfg holdfast.Config) (*session, error) {
	cfg.TTL = a.ttl
	limit := cmp.Or(a.opens, openLimit)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	warning := time.AfterFunc(openSilence, func() {
		if limit > openSilence+time.Second { // else it is given up before one has read that
			a.say("%s has not answered for %v; giving up after %v at the latest", a.where(), openSilence, limit)
		}
	})
	defer warning.Stop()
	began, missing := time.Now(), open.Exists(a.url()) != nil
	c, st, err := a.dial(limited, &cfg)
	switch {
	case err == nil:
		if missing {
			a.say("made a new store: %s", st.Place)
		}
	case ctx.Err() != nil, errors.Is(err, holdfast.ErrInvalid) && st != nil: // not the store
		return nil, err
	default:
		return nil, a.unopened(err, time.Since(began))
	}
	return &session{Client: c, place: st.Place, store: st, diagnose: func(ctx context.Context) error {
		_, err := st.Diagnose(ctx, a.url(), a.ttl)
		return err
	}, message: a.message, say: a.say, sayPolling: sync.OnceFunc(func() {
		if reason := st.Polling(); reason != "" {
			a.say("waiters ask the store every 5 to 50 ms because it cannot wake them: %s", reason)
		}
	})}, nil
}

// dial opens the store and a client. If only the client fails, dial closes the store and returns it
// with the error.
func (a *app) dial(ctx context.Context, cfg *holdfast.Config) (*holdfast.Client, *open.Store, error) {
	st, err := open.Open(ctx, a.url())
	if err != nil {
		return nil, nil, err
	}
	if a.opened != nil {
		a.opened(st)
	}
	if a.keeps {
		st.KeepLeases()
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

// where describes the store for people, before it is open.
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

// with runs f with a client. It reports an error of the close, but returns the result of f.
func (a *app) with(ctx context.Context, cfg holdfast.Config, f func(*session) error) error {
	s, err := a.connect(ctx, cfg)
	if err != nil {
		return err
	}
	err = f(s)
	if s.keep {
		return err
	}
	if cerr := s.close(); cerr != nil && !isOutage(err) { // else err reports the silence
		a.say("%s", unclosed(cerr))
	}
	return err
}

// existing is with for commands that only read, change or end what is there. They do not create a
// file that does not exist.
func (a *app) existing(ctx context.Context, f func(*session) error) error {
	if err := open.Exists(a.url()); err != nil {
		return a.unopened(err, 0)
	}
	a.opens = cmp.Or(a.opens, lookLimit)
	return a.with(ctx, holdfast.Config{}, f)
}
