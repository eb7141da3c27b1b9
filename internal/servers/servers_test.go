package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestOutput(t *testing.T) {
	log := output{most: 100}
	for i := range 1000 {
		_, _ = fmt.Fprintf(&log, "line %d\n", i)
	}
	if text := log.String(); len(text) > 300 || !strings.HasSuffix(text, "line 998\nline 999\n") {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

// A server that has ended is not ready, whoever answers in its place.
func TestAwaitEnded(t *testing.T) {
	var s Server
	if err := s.Start(exec.Command(os.Args[0], "-test.run=^$")); err != nil {
		t.Fatal(err)
	}
	if err := s.Await(t.Context(), func() error { <-s.current().done; return nil }); !errors.Is(err, ErrEnded) {
		t.Errorf("Await: %v; want ErrEnded", err)
	}
}

// A killed server has ended although a child of it remains, with the output open.
func TestKillLeavesTheOutputOpen(t *testing.T) {
	var s Server
	if err := s.Start(exec.Command("sh", "-c", "sleep 60 & echo $!; wait")); err != nil {
		t.Fatal(err)
	}
	child := 0
	err := s.Await(t.Context(), func() (err error) {
		child, err = strconv.Atoi(strings.TrimSpace(s.Output(100)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(child, syscall.SIGKILL) }()
	began := time.Now()
	if err := s.Kill(); err != nil || time.Since(began) > 30*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
