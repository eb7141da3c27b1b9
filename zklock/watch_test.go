package zklock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// A hint is for the name whose nodes have changed, however odd its path is. Reading a record causes
// none, so that watchers do not keep each other busy.
func TestWatchedNames(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	p := newPeerFor(t, cfg, 3*time.Minute) // nobody renews the markers
	ctx, cancel := context.WithCancel(within(t))
	hints, ended := make(chan string, 10_000), make(chan error, 1)
	watching := backend(t, cfg)
	go func() { ended <- watching.Watch(ctx, "", func(name string) { hints <- name }) }()
	hear := func(want string) (others []string) {
		t.Helper()
		for {
			select {
			case name := <-hints:
				if name == want {
					return others
				}
				others = append(others, name)
			case err := <-ended:
				t.Fatalf("no hint %q: the watch has ended: %v", want, err)
			case <-time.After(limit):
				t.Fatalf("no hint %q", want)
			}
		}
	}
	hear("")
	names := []string{"a", "a/b", "a//b", "/", "a\x00", "\U0001f512/\U0001f511", ".", "a/..", "%", "a/%2F", "locks", "a b",
		strings.Repeat("/", driver.MaxName), "deep/" + strings.Repeat("d/", 200) + "e"}
	for i, name := range names {
		began := time.Now()
		h := p.get(p.req(name))
		hear(name)
		marker := fmt.Sprint("marker", i) // its hint comes after every hint of the grant
		p.get(p.req(marker))
		hear(marker)
		err := p.Release(within(t), h, time.Hour) // reading a kept name asks for the servers' clock
		must(t, fmt.Sprintf("Release of %q after %v", name, time.Since(began)), err)
		hear(name)
	}
	p.get(p.req("sync"))
	hear("sync")
	for _, name := range names {
		if r := p.inspect(name); r.Kind == driver.Unused {
			t.Errorf("%q is not kept", name)
		}
	}
	p.get(p.req("end"))
	late := hear("end")
	if slices.ContainsFunc(late, func(name string) bool { return name != "sync" }) {
		t.Errorf("hints for names that were only read: %q", late)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("Watch returned no error")
	}
}
