package verify

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/holdfast-lock/holdfast/open"
)

// hookLimit bounds each of a hook's two runs.
const hookLimit = time.Minute

// Hook is a Fault that runs a command of the user's, with one more word: "start" to begin it and
// "stop" to end it. The command is a line for the shell. It may leave processes behind.
func Hook(name, command string) Fault {
	do := func(ctx context.Context, word string) error {
		ctx, cancel := context.WithTimeout(ctx, hookLimit)
		defer cancel()
		cmd := shell(command, word)
		ownGroup(cmd)
		cmd.Env = open.Environ()
		var words tail
		cmd.Stdout, cmd.Stderr = &words, &words
		cmd.WaitDelay = time.Second // for the processes that it left behind
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("hook %s %s: %w", name, word, err)
		}
		stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
		defer stop()
		err := cmd.Wait()
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("hook %s %s: %w", name, word, context.Cause(ctx))
		case err != nil && !errors.Is(err, exec.ErrWaitDelay):
			return fmt.Errorf("hook %s %s: %w: %s", name, word, err, words.String())
		}
		return nil
	}
	return Fault{Kind: name, Inject: func(ctx context.Context) (func(context.Context) error, error) {
		err := do(ctx, "start")
		// Even after half a start.
		return func(ctx context.Context) error { return do(ctx, "stop") }, err
	}}
}
