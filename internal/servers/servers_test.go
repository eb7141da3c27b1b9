package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
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
