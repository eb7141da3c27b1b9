package zklock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// holderEnv makes this program a holder. Its value is the server's address and a file with the
// newest token that any client has had.
const holderEnv = "ZKLOCK_TEST_HOLDER"

// TestHolderProcess is the program of the stopped process. It takes the lock, then reads the file
// first and its lease afterwards. So a newer token in the file means that the lease must have
// ended.
func TestHolderProcess(t *testing.T) {
	addr, file, ok := strings.Cut(os.Getenv(holderEnv), " ")
	if !ok {
		return // only TestStoppedHolder starts it
	}
	c := client(t, on(addr), time.Second)
	l := lock(t, c, "x")
	ctx := l.Context(context.Background())
	fmt.Println("token", l.Token())
	for end := time.Now().Add(limit); time.Now().Before(end); {
		text, _ := os.ReadFile(file)
		newest, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		err := l.Err()
		if err == nil && newest > l.Token() {
			fmt.Println("overtaken by", newest)
			return
		}
		if err != nil {
			select {
			case <-ctx.Done():
				if errors.Is(context.Cause(ctx), holdfast.ErrLost) && errors.Is(err, holdfast.ErrLost) {
					fmt.Println("lost")
				}
			case <-time.After(limit):
				fmt.Println("the context is not done")
			}
			return
		}
	}
}

// A process that was stopped for longer than its session knows when it continues that it lost the
// lock.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	server := testenv.ZooKeeper(t, longSessions)
	c := client(t, on(server.Addr), longTTL)
	for range testenv.Rounds(2, 4) {
		file := filepath.Join(t.TempDir(), "token")
		cmd := exec.CommandContext(within(t), os.Args[0], "-test.run=^TestHolderProcess$")
		cmd.Env = append(os.Environ(), holderEnv+"="+server.Addr+" "+file, "GORACE=atexit_sleep_ms=0")
		out, err := cmd.StdoutPipe()
		must(t, "pipe", err)
		must(t, "start", cmd.Start())
		lines := bufio.NewScanner(out)
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), "token ") {
			t.Fatalf("the holder printed %q", lines.Text())
		}
		time.Sleep(100 * time.Millisecond)
		must(t, "stop", cmd.Process.Signal(syscall.SIGSTOP))
		l := lock(t, c, "x")
		must(t, "write", os.WriteFile(file, fmt.Appendln(nil, l.Token()), 0o600))
		must(t, "continue", cmd.Process.Signal(syscall.SIGCONT))
		if !lines.Scan() || lines.Text() != "lost" {
			t.Errorf("the holder, after it was stopped: %q; want \"lost\"", lines.Text())
		}
		for lines.Scan() { // what the test program prints at its end
		}
		_ = cmd.Wait()
		must(t, "Release", l.Release())
	}
}
