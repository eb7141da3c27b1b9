package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/keeper"
	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/open"
)

// Variables about holds.
const (
	envHold   = "HOLDFAST_HOLD"   // the socket of a keeper
	envTicket = "HOLDFAST_TICKET" // a ticket for adopt
)

// keeperName is the hidden command that a keeper runs.
const keeperName = "hold-keeper"

// holdOptions are the flags of hold. They also tell the keeper what to do.
type holdOptions struct {
	URL   string
	TTL   time.Duration
	Name  string
	While int  // the process whose end ends the hold; 0: none
	File  bool // its descriptor is watchFD

	NoWait    bool
	Wait      time.Duration
	WaitSet   bool
	Exclusive bool
	Shared    bool
	Permits   int
	Limit     int
	AsSet     bool
	MaxHold   time.Duration
	Note      string
	Labels    labels

	wait   seconds
	export bool
}

// watchFD is the descriptor of the process to watch in a keeper.
const watchFD = 3

const aboutHold = `Wait for the lock NAME, and keep it for the commands that follow: for the steps of a CI job, or
in a shell. A process in the background, the keeper, holds and renews the lock. hold returns when
the keeper holds it. "holdfast release" ends the hold.

The hold also ends by itself:
  --max-hold D   after the time D
  --while PID    when the process PID ends; in a script, --while $$ is the script itself
Without both, the shell of the terminal takes the place of PID. Where there is no terminal, hold
asks for one of them. The end of hold's own parent, or of its process group, does not end the
hold: each step of a CI job has its own.

hold prints what later commands need, one VARIABLE=VALUE a line: HOLDFAST_LOCK, HOLDFAST_TOKEN
(the fencing token), HOLDFAST_HELD, and HOLDFAST_HOLD, which names this hold. With --export a
shell can evaluate the output. No value is a secret. Without HOLDFAST_HOLD, check, release and
handoff find a hold by NAME only below its PID, or in its terminal: never one with --max-hold alone.

A lock can be lost: an operator breaks it, the store does not answer for too long, the machine
sleeps, or the keeper is killed. No command is ended then, other than by "holdfast run" and
"holdfast adopt". So ask before each step: "holdfast check" exits with 76 if the lock is not
held. "holdfast release" does so as well. If a keeper is killed, the store frees the name a TTL
later at the latest.

A keeper whose lock was lost, or was adopted after a hand-off, stays for an hour without the lock,
so that check and release can say why. A release, or the end of PID, ends it before; so does TERM.

Other users of the machine cannot use, end or see the hold. Every process of this user can.`

func (a *app) holdCommand() *cobra.Command {
	o := &holdOptions{}
	c := &cobra.Command{
		Use:   "hold [flags] NAME",
		Short: "Hold a lock over several commands",
		Long:  aboutHold,
		Example: `  holdfast hold deploy                                 in a terminal, until "holdfast release deploy"
  eval "$(holdfast hold --export --while $$ deploy)"   in a script, until "holdfast release"
  holdfast hold --max-hold 30m deploy >>"$GITHUB_ENV"  in a CI job, until "holdfast release" in a later step
  holdfast hold --max-hold 30m --export deploy >env    in any other: each step begins with  . ./env`,
		Args: exactly("the name of the lock"),
		RunE: ours(func(c *cobra.Command, args []string) error {
			if err := o.check(c, args[0]); err != nil {
				return err
			}
			return a.hold(o)
		}),
	}
	f := c.Flags()
	f.BoolVarP(&o.NoWait, "nonblock", "n", false, "do not wait: exit at once if the lock is taken")
	alsoTimeout(c)
	f.VarP(&o.wait, "wait", "w", "wait at most this long (`SECONDS` or a duration such as 1m30s)")
	f.BoolVarP(&o.Exclusive, "exclusive", "x", false, "one holder at a time: the default; see holdfast run")
	f.BoolVarP(&o.Shared, "shared", "s", false, "share the lock with other holders that use -s")
	f.IntVar(&o.Limit, "limit", 0, "NAME is a semaphore with `M` permits in all")
	f.IntVar(&o.Permits, "permits", 1, "hold `N` permits; without --limit, of the limit that is set")
	durationVar(f, &o.MaxHold, "max-hold", 0, "release the lock after this long")
	f.IntVar(&o.While, "while", 0, "release the lock when the process `PID` ends")
	f.BoolVar(&o.export, "export", false, "print commands for a shell: eval \"$(holdfast hold --export NAME)\"")
	f.StringVar(&o.Note, "note", "", "a text that waiters and ls show")
	f.Var(&o.Labels, "label", "a label that waiters and ls show (`KEY=VALUE`; repeatable)")
	return c
}

// check does the checks that the flag library cannot do.
func (o *holdOptions) check(c *cobra.Command, name string) error {
	given := c.Flags().Changed
	err := firstOf(
		checkNames(name), together(c, "nonblock", "wait"), together(c, "exclusive", "shared", "limit"),
		together(c, "exclusive", "shared", "permits"), positive(c, "max-hold", "permits", "while"),
		atMost(c, "max-hold", o.MaxHold, driver.MaxHold),
	)
	switch {
	case err != nil:
		return err
	case o.Permits > driver.MaxLimit:
		return usagef("--permits %d: allowed are 1 to %d", o.Permits, driver.MaxLimit)
	case given("limit") && (o.Limit < 1 || o.Limit > driver.MaxLimit):
		return usagef("--limit %d: allowed are 1 to %d", o.Limit, driver.MaxLimit)
	case given("limit") && o.Permits > o.Limit:
		return usagef("--permits %d: allowed are 1 to %d, the --limit", o.Permits, o.Limit)
	case !o.export && strings.ContainsAny(name, "\r\n"):
		return usagef("%s: a name with a line break needs --export", show(name))
	}
	if !given("while") && !given("max-hold") {
		leader, ok := keeper.SessionLeader()
		if !ok {
			return usagef("there is no terminal: say when the hold ends, for example --max-hold 30m, or --while PID")
		}
		o.While = leader
	}
	o.Name, o.AsSet = name, given("permits") && !given("limit")
	o.Wait, o.WaitSet = o.wait.d, o.wait.set
	return nil
}

// hold starts a keeper, and returns when it holds the lock.
func (a *app) hold(o *holdOptions) error {
	o.URL, o.TTL, o.Labels = a.url(), a.ttl, a.labelled(o.Labels)
	if o.URL != "" && strings.HasPrefix(strings.ToLower(o.URL), "memory:") {
		return usagef("memory: is a store for one process: no later command could use the hold")
	}
	k, err := a.startKeeper(o)
	if err != nil {
		return err
	}
	signals := catchSignals()
	ctx, detach := cancelOnSignal(signals)
	select {
	case held := <-k.held:
		if caught := detach(); caught != nil {
			return k.stop(caught)
		}
		if held == nil {
			return k.failed()
		}
		if err := o.print(a.stdout, held); err != nil {
			return k.stop(err)
		}
		_, err := io.WriteString(k.stdin, "\n") // from here on the keeper works alone
		return errors.Join(err, k.stdin.Close())
	case <-ctx.Done():
		return k.stop(detach())
	}
}

// starting is a keeper that does not work alone yet.
type starting struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser // its end ends the keeper
	held  chan *heldBy   // nil if the keeper has failed
	said  chan struct{}  // closed when its messages have been shown
}

// heldBy is what a keeper reports.
type heldBy struct {
	Token  uint64 `json:"token,string"`
	Socket string `json:"socket"`
	Held   string `json:"held"` // of HOLDFAST_HELD
}

func (a *app) startKeeper(o *holdOptions) (*starting, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	k := &starting{cmd: exec.Command(exe, keeperName), held: make(chan *heldBy, 1), said: make(chan struct{})}
	k.cmd.Args[0] = "holdfast"
	k.cmd.Dir, k.cmd.SysProcAttr, k.cmd.Env = "/", keeper.Detached(), open.Environ()
	if o.While != 0 {
		p, err := keeper.OpenProcess(o.While)
		if err != nil {
			return nil, usagef("--while %d: there is no such process", o.While)
		}
		if f := p.File(); f != nil {
			defer f.Close()
			k.cmd.ExtraFiles, o.File = []*os.File{f}, true
		}
	}
	stdout, err1 := k.cmd.StdoutPipe()
	stderr, err2 := k.cmd.StderrPipe()
	stdin, err3 := k.cmd.StdinPipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	k.stdin = stdin
	if err := k.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(k.said)
		_, _ = io.Copy(a.stderr, stderr)
	}()
	go func() {
		held := new(heldBy)
		if err := json.NewDecoder(bufio.NewReader(stdout)).Decode(held); err != nil {
			held = nil
		}
		k.held <- held
	}()
	err = json.NewEncoder(stdin).Encode(o)
	if err != nil {
		return nil, k.stop(err)
	}
	return k, nil
}

// failed returns the error of a keeper that has ended. It has reported the reason.
func (k *starting) failed() error {
	<-k.said
	_ = k.cmd.Wait()
	if code := k.cmd.ProcessState.ExitCode(); code > 0 {
		return &failure{code, nil}
	}
	return fmt.Errorf("the keeper has ended: %v", k.cmd.ProcessState)
}

// stop ends a keeper, which releases the lock, and returns why.
func (k *starting) stop(why error) error {
	_ = k.stdin.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = k.cmd.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(openLimit + 2*closeLimit): // it goes on by itself
	}
	return why
}

// print writes what later commands need.
func (o *holdOptions) print(w io.Writer, held *heldBy) error {
	var b strings.Builder
	for _, v := range [][2]string{
		{envLock, o.Name}, {envToken, strconv.FormatUint(held.Token, 10)}, {envHold, held.Socket}, {envHeld, held.Held},
	} {
		if o.export {
			fmt.Fprintf(&b, "export %s=%s\n", v[0], "'"+strings.ReplaceAll(v[1], "'", `'\''`)+"'")
		} else {
			fmt.Fprintf(&b, "%s=%s\n", v[0], v[1])
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// runOptions returns the options of run that ask for the same lock.
func (o *holdOptions) runOptions() *runOptions {
	return &runOptions{
		taskOptions: taskOptions{note: o.Note, labels: o.Labels}, noWait: o.NoWait,
		wait: seconds{o.Wait, o.WaitSet}, exclusive: o.Exclusive, shared: o.Shared, permits: cmp.Or(o.Permits, 1),
		limit: o.Limit, asSet: o.AsSet, busyCode: exitBusy, lease: o.MaxHold,
	}
}
