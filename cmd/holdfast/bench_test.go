//go:build unix

package main_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// A signal ends bench at once, and no name stays in use. Workloads that have ended are printed.
func TestBenchSignal(t *testing.T) {
	for name, c := range map[string]struct {
		duration, rounds, during string
		printed                  bool
	}{"first": {"10m", "1", "exchange: ", false},
		"second": {"2s", "10", "one/16: ", true}} { // more rounds: it must not end before the signal
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			s := testenv.RedisACL(b, []string{"user locker on >c4nary ~* &* +@all"})
			b.env = append(b.env, "HOLDFAST_URL=redis://locker:c4nary@"+s.Addr)
			p := b.start("bench", "--duration", c.duration, "--count", c.rounds, "--scenario", "one/16")
			b.until("it is under way", func() bool { return strings.Contains(p.err.String(), c.during) })
			began := time.Now()
			p.signal(syscall.SIGINT)
			code, out, stderr := p.code(), p.out.String(), p.err.String()
			if took := time.Since(began); code != 128+int(syscall.SIGINT) || took > limit/2 {
				t.Errorf("exit code %d after %v: %s%s", code, took, out, stderr)
			}
			printed := strings.Contains(out, "\nexchange ") && strings.Contains(out, "\nThe run is incomplete.\n")
			if printed != c.printed {
				t.Errorf("printed: %v: %s", printed, out)
			}
			if strings.Contains(out+stderr, "c4nary") {
				t.Errorf("the password is in the output: %s%s", out, stderr)
			}
			if out, _ := b.want(0, "ls", "-o", "name"); out != "" {
				t.Errorf("left in use: %s", out)
			}
		})
	}
}
