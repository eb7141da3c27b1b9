package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
)

// labText prints the parts of a timeline. With step, each part but the first waits for a line of
// standard input. The row has run before: the leases of a lock do not wait for a reader.
func (a *app) labText(ctx context.Context, parts []string, step bool) error {
	if !step {
		_, err := io.WriteString(a.stdout, strings.Join(parts, ""))
		return err
	}
	next := make(chan struct{})
	go func() { // it ends with the program, if nobody presses Enter
		defer close(next)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			select {
			case next <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	for i, p := range parts {
		if i > 0 {
			select {
			case <-next: // a line, or the end of input
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if _, err := io.WriteString(a.stdout, strings.TrimSuffix(p, "\n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// labProgress returns a function that shows how many rows have run, if standard error is a terminal
// and standard output is none: the rows themselves show it there.
func (a *app) labProgress(rows int) func(done int) {
	out, ok := a.stderr.(*os.File)
	if shown, isFile := a.stdout.(*os.File); !ok || width(out) == 0 || isFile && width(shown) > 0 {
		return func(int) {}
	}
	return func(done int) {
		end := ""
		if done == rows {
			end = "\n"
		}
		fmt.Fprintf(out, "\r%d of %d rows have run%s", done, rows, end)
	}
}
