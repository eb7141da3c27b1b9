package redisson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// TestVerify: holdfast verify drives workers of Redisson beside its own on the same locks. It kills,
// stops and disconnects both, and restarts the server, which keeps its data.
func TestVerify(t *testing.T) {
	if !testenv.Deep() {
		return // it takes some minutes; scripts/deep.sh runs it
	}
	dir := t.TempDir()
	holdfast := filepath.Join(dir, "holdfast")
	build := exec.Command("go", "build", "-C", "../../cmd/holdfast", "-o", holdfast, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := testenv.Redis(t, "--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes")
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	restart := filepath.Join(dir, "restart") // the reply is lost with the connection
	script := fmt.Sprintf("#!/bin/sh\n[ $1 = start ] || exit 0\nredis-cli -p %s debug restart\nexit 0\n", port)
	if err := os.WriteFile(restart, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, release := range releases() {
		t.Run(release, func(t *testing.T) { verify(t, holdfast, s.URL()+"?dialect=redisson", restart, release, "") })
		if i == 0 {
			t.Run(release+" fenced", func(t *testing.T) {
				verify(t, holdfast, s.URL()+"?dialect=redisson&mutex=fenced", restart, release, "fenced")
			})
		}
	}
}

// verify runs holdfast verify beside workers with a kind of lock.
func verify(t *testing.T, holdfast, url, restart, release, kind string) {
	classPath, err := program(release).ClassPath()
	if err != nil {
		t.Fatal(err)
	}
	worker := "exec java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true -cp '" +
		classPath + "' worker.Main " + kind
	cmd := exec.Command(holdfast, "verify", "--json", "--store", url, "--worker", worker, "--beside", "2",
		"--duration", "40s", "--pause", "50ms", "--slack", "8s", "--hook", "restart="+restart,
		"--keep", filepath.Join(t.TempDir(), "kept"))
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	ended := make(chan error, 1)
	servers.Tie(cmd, func() { ended <- cmd.Run() })
	err = <-ended
	var r struct {
		Outcome, Worker string
		Faults          map[string]int
		Beside          struct {
			Grants, Changes, Faults struct{ Holdfast, Worker int }
		}
	}
	if bad := json.Unmarshal(out.Bytes(), &r); err != nil || bad != nil || r.Outcome != "clean" {
		t.Fatalf("%v, %v: %s\n%s", err, bad, &out, &stderr)
	}
	t.Logf("%s: %+v, faults %v", r.Worker, r.Beside, r.Faults)
}
