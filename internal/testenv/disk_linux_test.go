package testenv

import "testing"

// A server's disk is full and then has space again. The server keeps its data.
func TestOwnDisk(t *testing.T) {
	t.Parallel()
	r := Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	r.Do("SET a 1")
	d := r.OwnDisk(1 << 20)
	if got := r.Do("GET a"); got != "$1" {
		t.Fatalf("a, on the other disk: %q", got)
	}
	d.Fill()
	eventually(t, "the server ends because it cannot write", func() bool {
		_, _ = r.command("SET b 1")
		return r.run.Ended()
	})
	d.Relieve()
	r.Start()
	if got := r.Do("GET a"); got != "$1" {
		t.Errorf("a, in the end: %q", got)
	}
}
