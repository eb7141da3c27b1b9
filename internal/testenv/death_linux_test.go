package testenv

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

const deathEnv = "HOLDFAST_TESTENV_DEATH"

// Servers die with the test's process, however it ends. This includes servers that run as another
// user, and frozen ones.
func TestServersDieWithTheTest(t *testing.T) {
	if os.Getenv(deathEnv) != "" {
		p := Postgres(t)
		MariaDB(t).Exec("SELECT 1")
		PgBouncer(t, p, "transaction")
		mine := descendants(t, os.Getpid())
		p.Pause()
		fmt.Println("family", strings.Trim(fmt.Sprint(mine), "[]"))
		select {}
	}
	if testing.Short() {
		t.Skip("-short: this test starts servers")
	}
	dir, err := os.MkdirTemp("", "death") // for files that the servers cannot remove any more
	if err == nil {
		err = os.Chmod(dir, 0o755) // they run as other users
	}
	must(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServersDieWithTheTest$")
	cmd.Env = append(os.Environ(), deathEnv+"=1", "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var family []int
	var printed []string
	for lines := bufio.NewScanner(out); family == nil && lines.Scan(); {
		printed = append(printed, lines.Text())
		if words, ok := strings.CutPrefix(lines.Text(), "family "); ok {
			for _, w := range strings.Fields(words) {
				var pid int
				if _, err := fmt.Sscan(w, &pid); err != nil {
					t.Fatal(err)
				}
				family = append(family, pid)
			}
		}
	}
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	if len(family) < 7 { // PostgreSQL alone has five
		t.Fatalf("processes %v\n%s", family, strings.Join(printed, "\n"))
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		all, err := servers.Processes()
		must(t, err)
		var left []int
		for _, pid := range family {
			if s, ok := all[pid]; ok && s.State != 'Z' {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			t.Fatalf("processes %v of %v still run", left, family)
		}
	}
}

// descendants returns the processes that pid has started, and theirs.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	processes, err := servers.Processes()
	must(t, err)
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		for child, s := range processes {
			if s.Parent == all[i] && s.State != 'Z' {
				all = append(all, child)
			}
		}
	}
	return all[1:]
}

// A server that is killed at the end of its test leaves no shared memory.
func TestPostgresMemory(t *testing.T) {
	segment, before := "", segments(t)
	t.Run("server", func(t *testing.T) {
		p := Postgres(t)
		pid, err := os.ReadFile(filepath.Join(p.data, "postmaster.pid"))
		must(t, err)
		words := strings.Fields(strings.Split(string(pid), "\n")[6])
		if segment = words[len(words)-1]; !segments(t)[segment] || before[segment] {
			t.Fatalf("the server's segment is %s; there are %v", segment, segments(t))
		}
	})
	if segments(t)[segment] {
		t.Errorf("segment %s of shared memory still exists", segment)
	}
}

// segments returns the numbers of the system's segments of shared memory.
func segments(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile("/proc/sysvipc/shm")
	must(t, err)
	ids := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		ids[strings.Fields(line)[1]] = true
	}
	return ids
}
