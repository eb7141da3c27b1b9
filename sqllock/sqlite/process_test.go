package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

// Tests with several processes run this test binary again as a helper. It reads commands from its
// standard input and writes answers to its standard output. It ends with its input.

const (
	helperEnv = "SQLLOCK_TEST_HELPER"
	helperTTL = 10 * patience
)

// helperMain is the helper process.
func helperMain(path string) int {
	b, err := Open(path, nil)
	if err == nil {
		defer b.Close()
		var s driver.Session
		s, err = b.Open(context.Background(), driver.SessionConfig{ID: newID(), TTL: helperTTL})
		if err == nil {
			h := &helper{b: b, s: s.(*session)}
			for in := bufio.NewScanner(os.Stdin); err == nil && in.Scan(); {
				err = h.obey(strings.Fields(in.Text()))
			}
		}
	}
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

type helper struct {
	b    *Backend
	s    *session
	hold driver.Hold
}

func (h *helper) obey(line []string) error {
	ctx := context.Background()
	switch line[0] {
	case "acquire": // NAME
		req := exclusive(line[1])
		rep, err := h.s.Acquire(ctx, req)
		if err != nil {
			return err
		}
		if rep.Token == 0 {
			fmt.Println("waiting")
			if rep.Token, err = h.await(req, rep.Wake); err != nil {
				return err
			}
		}
		fmt.Println("granted", rep.Token, host.Now())
		h.hold = holdOf(req, rep.Token)
	case "release":
		now := host.Now()
		if err := h.s.Release(ctx, h.hold, 0); err != nil {
			return err
		}
		fmt.Println("released", now)
	case "loop": // NAME ROUNDS HOLD
		return h.loop(line[1], line[2], line[3])
	case "stall": // keeps SQLite's write lock until the process is killed
		return h.b.st.w.with(context.Background(), func() error {
			if _, err := h.b.st.w.exec(qBegin); err != nil {
				return err
			}
			fmt.Println("stalled")
			select {} // also the background sweep waits for this connection
		})
	default:
		return fmt.Errorf("unknown command %q", line)
	}
	return nil
}

// await waits as package holdfast does, with renewals of its place.
func (h *helper) await(req *driver.Request, wake <-chan uint64) (uint64, error) {
	beat := time.NewTicker(helperTTL / 3)
	defer beat.Stop()
	for {
		select {
		case token := <-wake:
			if token != 0 {
				return token, nil
			}
		case <-beat.C:
			changes, err := h.s.Renew(context.Background(), []driver.Hold{{Name: req.Name, ID: req.ID}})
			if err != nil {
				return 0, err
			}
			if len(changes) == 1 && changes[0].State == driver.Granted {
				return changes[0].Token, nil
			}
		}
	}
}

// loop takes and releases a name repeatedly. For each round it prints the token, the time of the
// grant, and the time at which the release began.
func (h *helper) loop(name, rounds, hold string) error {
	var n int
	if _, err := fmt.Sscan(rounds, &n); err != nil {
		return err
	}
	d, err := time.ParseDuration(hold)
	if err != nil {
		return err
	}
	var out strings.Builder
	for range n {
		req := exclusive(name)
		rep, err := h.s.Acquire(context.Background(), req)
		if err == nil && rep.Token == 0 {
			rep.Token, err = h.await(req, rep.Wake)
		}
		if err != nil {
			return err
		}
		from := host.Now()
		time.Sleep(d)
		to := host.Now()
		if err := h.s.Release(context.Background(), holdOf(req, rep.Token), 0); err != nil {
			return err
		}
		fmt.Fprintln(&out, "round", rep.Token, from, to)
	}
	fmt.Print(out.String(), "done\n")
	return nil
}

// proc is a helper process as its test sees it.
type proc struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  chan string
	back []string // answers read too early, for the next hear
}

func startHelper(t testing.TB, path string) *proc {
	t.Helper()
	return startHelperBy(t, path, nil)
}

// startHelperBy starts a helper through another command, which gets the program as its last
// argument.
func startHelperBy(t testing.TB, path string, by []string) *proc {
	t.Helper()
	args := append(by[:len(by):len(by)], os.Args[0])
	cmd := exec.Command(args[0], args[1:]...)
	// Otherwise the race detector would make it sleep for a second before it ends.
	cmd.Env = append(os.Environ(), helperEnv+"="+path, "GOMAXPROCS=1", "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	dieWithParent(cmd)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	p := &proc{t: t, cmd: cmd, in: in, out: make(chan string, 1000)}
	var read sync.WaitGroup
	read.Go(func() {
		defer close(p.out)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			p.out <- sc.Text()
		}
	})
	t.Cleanup(func() {
		in.Close()
		late := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		read.Wait()
		cmd.Wait() // some were killed on purpose
		late.Stop()
	})
	return p
}

func startHelpers(t testing.TB, path string, n int) []*proc {
	t.Helper()
	all := make([]*proc, n)
	for i := range all {
		all[i] = startHelper(t, path)
	}
	return all
}

func (p *proc) say(line string) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.in, line)
	must(p.t, err)
}

// hear returns the fields of the next answer, which must begin with want.
func (p *proc) hear(want string) []string {
	p.t.Helper()
	if len(p.back) > 0 {
		f := strings.Fields(p.back[0])
		p.back = p.back[1:]
		return f
	}
	select {
	case line, ok := <-p.out:
		f := strings.Fields(line)
		if !ok || len(f) == 0 || f[0] != want {
			p.t.Fatalf("helper %d answered %q; want %s", p.cmd.Process.Pid, line, want)
		}
		return f
	case <-time.After(patience):
		p.t.Fatalf("helper %d does not answer; want %s", p.cmd.Process.Pid, want)
		return nil
	}
}

// granted waits for a grant and returns its token, and when the helper got it.
func (p *proc) granted() (token uint64, at int64) {
	p.t.Helper()
	f := p.hear("granted")
	if _, err := fmt.Sscan(f[1]+" "+f[2], &token, &at); err != nil {
		p.t.Fatal(err)
	}
	return token, at
}
