package testenv

import (
	"slices"
	"testing"
)

// No process of a frozen server runs, and none of a killed server is left.
func TestPostgresFamily(t *testing.T) {
	p := Postgres(t)
	root := p.current().pid()
	states := func() (running, stopped []int) {
		t.Helper()
		all, err := processes()
		if err != nil {
			t.Fatal(err)
		}
		for pid, s := range all {
			switch {
			case pid != root && s.parent != root || s.state == 'Z':
			case s.state == 'T':
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
	all, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range family {
		if s, ok := all[pid]; ok && s.state != 'Z' {
			t.Errorf("killed: process %d still exists, in state %c", pid, s.state)
		}
	}
	p.Start()
	p.Pause()
	p.Stop()
	p.Start()
	p.Exec("SELECT 1")
}
