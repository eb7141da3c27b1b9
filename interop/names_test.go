package interop

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const protected = `^_c_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`

// The names of holdfast's nodes have the form of Curator's own, which the test checks, too. Like
// Curator's nodes they end with their session.
func TestNames(t *testing.T) {
	t.Parallel()
	for n, s := range []side{curator, ours} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.peer(s)
			for i, c := range []struct{ kind, folder, shape string }{
				{"mutex", "", "-lock-"},
				{"read", "", "-__READ__"},
				{"write", "", "-__WRIT__"},
				{"semaphore", "/leases", "-lease-"},
				{"semaphore", "/locks", "-lock-"},
			} {
				path := fmt.Sprint(root, "/names/", n, c.kind, i)
				holder, waiter := p.actor(fmt.Sprint("h", i), longSession), p.actor(fmt.Sprint("w", i), longSession)
				blocker := c.kind
				if c.kind == "read" {
					blocker = "write"
				}
				holder.Do("lock", blocker, path)
				w.queue(waiter, c.kind, path)
				names := w.nodes(path + c.folder)
				n := 0
				for _, name := range names {
					if regexp.MustCompile(protected + c.shape + `\d{10}$`).MatchString(name) {
						n++
					} else if c.kind != "read" || !strings.Contains(name, "__WRIT__") {
						t.Errorf("%s: the node %q in %s", c.kind, name, path+c.folder)
					}
					_, stat, err := w.observer.Exists(path + c.folder + "/" + name)
					if err != nil || stat.EphemeralOwner == 0 {
						t.Errorf("%s/%s: owner %#x, %v", path+c.folder, name, stat.EphemeralOwner, err)
					}
				}
				if n == 0 {
					t.Errorf("%s: no node of the form %s in %s: %q", c.kind, c.shape, path+c.folder, names)
				}
				holder.Do("unlock")
				waiter.OK("lock")
				waiter.Do("unlock")
			}
		})
	}
}

// A path means the same lock to both, whatever its characters; or holdfast refuses it.
func TestPaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours)
	theirs, mine := java.actor("theirs", longSession), golang.actor("mine", longSession)
	for _, path := range []string{"50%", "100%25", "a%2Fb", "%", "%%/%41", "a/50%", "a/%clock", "a/Locks", "é/ü",
		"zookeeper/a", "../locks", "../latch", "../x-lock-0000000001"} {
		path = root + "/paths/" + path
		// In no lock's folder.
		if level, first := strings.CutPrefix(path, root+"/paths/../"); first {
			path = root + "/" + level
		}
		for _, pair := range [][2]*actor{{theirs, mine}, {mine, theirs}} {
			pair[0].Do("lock", "mutex", path)
			mustBeBusy(pair[1], "mutex", path, 0)
			pair[0].Do("unlock")
		}
		w.until(path, 0)
	}
	if control {
		return
	}
	for _, path := range []string{"a/locks", "a/leases/b", "a/latch", "a/x-lock-0000000001", "a/%holdfast%a%0Ab"} {
		mine.Send("try", "mutex", root+"/"+path, 0)
		if r := mine.Reply(); !strings.Contains(r, "on ZooKeeper it cannot have the level") {
			t.Errorf("%s: %s; it has another meaning, and must be refused", path, r)
		}
	}
}

// Curator counts holdfast's contenders, and only those, in the order of the queue.
func TestParticipants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	java, golang := w.peer(curator), w.peer(ours)
	judge := java.actor("judge", longSession)
	count := func(kind, path string, want []string) {
		t.Helper()
		if got := strings.Fields(judge.Do("participants", kind, path)); !slices.Equal(got, want) {
			t.Errorf("the participants of the %s at Curator: %q; want %q", kind, got, want)
		}
	}
	only := func(names []string, part string) (out []string) {
		for _, n := range names {
			if strings.Contains(n, part) {
				out = append(out, n)
			}
		}
		return out
	}

	const mutex, rw, semaphore = root + "/participants/mutex", root + "/participants/rw", root + "/participants/semaphore"
	golang.actor("m1", longSession).Do("lock", "mutex", mutex)
	w.queue(java.actor("m2", longSession), "mutex", mutex)
	w.queue(golang.actor("m3", longSession), "mutex", mutex)
	count("mutex", mutex, w.until(mutex, 3))

	golang.actor("r1", longSession).Do("lock", "write", rw)
	w.queue(java.actor("r2", longSession), "read", rw)
	w.queue(golang.actor("r3", longSession), "read", rw)
	w.queue(golang.actor("r4", longSession), "write", rw)
	w.queue(java.actor("r5", longSession), "write", rw)
	w.queue(golang.actor("r6", longSession), "read", rw)
	all := w.until(rw, 6)
	count("read", rw, only(all, "__READ__"))
	count("write", rw, only(all, "__WRIT__"))
	if n := len(only(all, "__READ__")); n != 3 {
		t.Errorf("%d readers in %q", n, all)
	}

	golang.actor("s1", longSession).Do("lock", "semaphore", semaphore, 3)
	golang.actor("s2", longSession).Do("lock", "semaphore", semaphore, 3)
	java.actor("s3", longSession).Do("lock", "semaphore", semaphore, 3)
	leases := w.until(semaphore+"/leases", 3)
	got := strings.Fields(judge.Do("participants", "semaphore", semaphore))
	slices.Sort(got) // Curator does not order them
	slices.Sort(leases)
	if !slices.Equal(got, leases) {
		t.Errorf("the leases at Curator: %q; want %q", got, leases)
	}
}
