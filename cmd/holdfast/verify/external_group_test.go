//go:build linux

package verify

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// A worker may be a shell with children: a stop and a kill reach them all.
func TestExternalGroup(t *testing.T) {
	r := &run{Options: Options{External: "x"}.withDefaults(), dir: t.TempDir(), ttl: time.Second}
	w, err := r.newExternalWorker("p1.1")
	if err != nil {
		t.Fatal(err)
	}
	// The shell forks a subshell. After a vfork no stop would reach it before the child's exec.
	p, err := startProcess(shellCommand("(cat >/dev/null); exit 0"), 0, 1, "p1.1", startOrder{}, w, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer p.kill()
	children := func() (pids []int) {
		all, err := servers.Processes()
		if err != nil {
			t.Fatal(err)
		}
		for pid, s := range all {
			if s.Parent == p.cmd.Process.Pid && s.State != 'Z' {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	var kids []int
	for end := time.Now().Add(20 * time.Second); len(kids) == 0; kids = children() { // no event tells of a fork
		if time.Now().After(end) {
			t.Fatal("the shell has no child")
		}
	}
	if !p.freeze() {
		t.Error("the stop does not reach all processes")
	}
	p.kill()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // nor of a grandchild's end
		all, err := servers.Processes()
		if s, there := all[kids[0]]; err == nil && (!there || s.State == 'Z') {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the child outlives the kill: %v", err)
		}
	}
}
