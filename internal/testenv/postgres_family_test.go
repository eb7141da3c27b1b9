package testenv

import (
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// No process of a frozen server runs, and none of a killed server is left.
func TestPostgresFamily(t *testing.T) {
	p := Postgres(t)
	root := p.run.PID()
	states := func() (running, stopped []int) {
		t.Helper()
		all, err := servers.Processes()
		if err != nil {
			t.Fatal(err)
		}
		for pid, s := range all {
			switch {
			case pid != root && s.Parent != root || s.State == 'Z':
			case s.State == 'T':
				stopped = append(stopped, pid)
			default:
				running = append(running, pid)
			}
		}
		return running, stopped
	}
	p.Pause()
	running, family := states()
	if len(running) > 0 || len(family) < 4 || !slices.Contains(family, root) {
		t.Errorf("paused: %v run, %v do not", running, family)
	}
	p.Kill()
	all, err := servers.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range family {
		if s, ok := all[pid]; ok && s.State != 'Z' {
			t.Errorf("killed: process %d still exists, in state %c", pid, s.State)
		}
	}
	p.Start()
	p.Pause()
	p.Stop()
	p.Start()
	p.Exec("SELECT 1")
}
