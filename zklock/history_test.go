package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/internal/zk"
	"github.com/holdfast-lock/holdfast/zklock"
)

const histories = "/%holdfast:history"

func add(t *testing.T, b *zklock.Backend, name, text string, keep int) {
	t.Helper()
	must(t, "AddHistory", b.AddHistory(within(t), name, text, keep))
}

func texts(t *testing.T, b *zklock.Backend, name string) (all []string) {
	t.Helper()
	list, err := b.History(within(t), name)
	must(t, "History", err)
	for _, e := range list {
		all = append(all, e.Text)
	}
	return all
}

// A history keeps its last entries, and nothing else.
func TestHistoryGrowth(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	b := backend(t, cfg)
	const keep = 50
	all := testenv.Rounds(400, 10_000)
	for i := range all {
		add(t, b, "x", fmt.Sprint("entry ", i), keep)
	}
	if got := texts(t, b, "x"); len(got) != keep || got[0] != fmt.Sprint("entry ", all-keep) ||
		got[keep-1] != fmt.Sprint("entry ", all-1) {
		t.Errorf("%d entries: %q", len(got), got)
	}
	if got := newTree(t, server.Addr).nodes(cfg.Root); len(got) != keep+2 || got[1] != cfg.Root+histories+"/x" {
		t.Errorf("%d nodes: %q", len(got), got)
	}
}

// The longest history of the longest entries of the longest name fits, and can be cut in one call.
func TestLongestHistory(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	b := backend(t, cfg)
	name := strings.Repeat("\x01", driver.MaxName) // three bytes each in a path
	text := func(i int) string { return fmt.Sprintf("%04d", i) + strings.Repeat("x", driver.MaxEntry-4) }
	for i := range driver.MaxHistory + 3 {
		add(t, b, name, text(i), driver.MaxHistory)
	}
	if got := texts(t, b, name); len(got) != driver.MaxHistory || got[0] != text(3) || got[999] != text(1002) {
		t.Errorf("%d entries, from %.4s", len(got), got[0])
	}
	add(t, b, name, "last", 2)
	if got := texts(t, b, name); len(got) != 2 || got[0] != text(1002) || got[1] != "last" {
		t.Errorf("%d entries, from %.4s", len(got), got[0])
	}
}

// Nothing shows the folder of the histories as a lock, a semaphore or a change.
func TestHistoryIsNoLock(t *testing.T) {
	t.Parallel()
	for what, protocol := range map[string]zklock.Protocol{"ordered": zklock.Ordered, "single": zklock.Single} {
		_, cfg := common(t)
		cfg.Protocol = protocol
		p := newPeer(t, cfg)
		ctx, stop := context.WithCancel(within(t))
		changes, ended := make(chan string, 100), make(chan bool)
		go func() {
			defer close(ended)
			for ctx.Err() == nil { // it ends when its connection breaks
				_ = p.Watch(ctx, "", func(name string) { changes <- name })
			}
		}()
		hear := func() string {
			select {
			case name := <-changes:
				return name
			case <-ctx.Done():
				t.Fatalf("%s: no hint within %v", what, limit)
				return ""
			}
		}
		if name := hear(); name != "" {
			t.Errorf("%s: a change of %q, and nothing was used", what, name)
		}
		for _, name := range []string{"", "a", "a/b", "leases", "locks", "%"} {
			add(t, p.Backend, name, "text of "+name, 5)
			add(t, p.Backend, name, "more of "+name, 5)
			if got := texts(t, p.Backend, name); len(got) != 2 {
				t.Errorf("%s: History(%q) = %q", what, name, got)
			}
		}
		use := func() { p.release(p.get(p.req("z"))) }
		use()
		for name := hear(); name != "z"; name = hear() {
			if name != "" {
				t.Errorf("%s: a change of %q", what, name)
				continue
			}
			use() // a new watch began, and the old one may have missed the change
		}
		stop()
		<-ended
		if list, err := p.List(within(t), "", "", 10); err != nil || len(list) > 0 {
			t.Errorf("%s: List = %+v, %v", what, list, err)
		}
		if r := p.inspect("a"); r.Kind != driver.Unused {
			t.Errorf("%s: Inspect = %+v", what, r)
		}
		if err := p.AddHistory(within(t), strings.TrimPrefix(histories, "/"), "x", 1); err != nil {
			t.Errorf("%s: a history of the folder's name: %v", what, err)
		}
	}
}

// Another program writes to a history. Calls for it report the damage and change nothing; others work.
func TestDamagedHistory(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z, p := newTree(t, server.Addr), newPeer(t, cfg)
	add(t, p.Backend, "bad", "text", 5)
	add(t, p.Backend, "good", "text", 5)
	path := cfg.Root + histories + "/bad"
	for _, node := range []string{"theirs", "0000000001", "1-" + strings.Repeat("a", 32), "-000000001-a",
		"9223372036854775807-" + strings.Repeat("a", 32), "0000000001-"} {
		made := z.make(path+"/"+node, zk.Persistent)
		before := z.nodes(path)
		_, err := p.History(within(t), "bad")
		for call, err := range map[string]error{"History": err, "AddHistory": p.AddHistory(within(t), "bad", "x", 1)} {
			if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s with %q: %v", call, node, err)
			}
		}
		if got := z.nodes(path); !slices.Equal(got, before) {
			t.Errorf("nodes %q; before %q", got, before)
		}
		z.delete(made)
	}
	entry := path + "/" + z.children(path)[0]
	for _, data := range []string{"", "\xff"} {
		_, err := z.Set(within(t), entry, []byte(data), zk.AnyVersion)
		must(t, "Set", err)
		if _, err = p.History(within(t), "bad"); !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("History with the data %q: %v", data, err)
		}
	}
	if got := texts(t, p.Backend, "good"); !slices.Equal(got, []string{"text"}) {
		t.Errorf("another history: %q", got)
	}
	p.release(p.get(p.req("bad")))
}

// Old histories are removed, and no other. An operator who deletes the folder loses its histories only.
func TestOldHistories(t *testing.T) {
	t.Parallel()
	server, cfg := common(t)
	z, b := newTree(t, server.Addr), backend(t, cfg)
	const many = 100
	for i := range many {
		add(t, b, fmt.Sprint("old/", i), "text", 5)
	}
	add(t, b, "live", "first", 5)
	const life = 10 * time.Second // much longer than a sweep takes
	time.Sleep(life + 100*time.Millisecond)
	add(t, b, "live", "second", 5)
	must(t, "sweep", zklock.SweepHistories(within(t), b, driver.HistoryLife))
	if n := len(z.children(cfg.Root + histories)); n != many+1 {
		t.Errorf("%d histories; want all: nothing is older than HistoryLife", n)
	}
	// One sweep removes 64 at most, and takes a second at most. On a busy machine all take longer than
	// life, so the live one gets another entry before each.
	want := []string{"first", "second"}
	for end := time.Now().Add(time.Minute); len(z.children(cfg.Root+histories)) > 1 && time.Now().Before(end); {
		want = append(want, fmt.Sprint("entry ", len(want)))
		add(t, b, "live", want[len(want)-1], 1000)
		must(t, "sweep", zklock.SweepHistories(within(t), b, life))
	}
	if got := z.children(cfg.Root + histories); !slices.Equal(got, []string{"live"}) {
		t.Errorf("left: %q", got)
	}
	if got := texts(t, b, "live"); !slices.Equal(got, want) {
		t.Errorf("History = %q; want %q", got, want)
	}
	for nodes := z.nodes(cfg.Root); len(nodes) > 0; nodes = nodes[:len(nodes)-1] {
		// The server may have removed an empty folder itself.
		err := z.Delete(within(t), nodes[len(nodes)-1], zk.AnyVersion)
		if !errors.Is(err, zk.ErrNoNode) {
			must(t, "delete", err)
		}
	}
	if got := texts(t, b, "live"); len(got) > 0 {
		t.Errorf("History without the folder = %q", got)
	}
	add(t, b, "live", "third", 5)
	if list, err := b.History(within(t), "live"); err != nil || len(list) != 1 || list[0].Age > limit {
		t.Errorf("History = %+v, %v", list, err)
	}
}

// A client with a session needs no further connection for histories. After the session another does.
func TestHistoryUsesTheSession(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	p := newPeer(t, cfg)
	add(t, p.Backend, "x", "first", 5)
	if got := texts(t, p.Backend, "x"); len(got) != 1 || zklock.OperatorOpen(p.Backend) {
		t.Errorf("History = %q; an operators' session: %v", got, zklock.OperatorOpen(p.Backend))
	}
	must(t, "Close", p.Close(within(t)))
	add(t, p.Backend, "x", "second", 5)
	if got := texts(t, p.Backend, "x"); len(got) != 2 || !zklock.OperatorOpen(p.Backend) {
		t.Errorf("History = %q; an operators' session: %v", got, zklock.OperatorOpen(p.Backend))
	}
	must(t, "Close", p.Backend.Close())
	_, err := p.History(within(t), "x")
	wants(t, "History of a closed backend", err, driver.ErrClosed)
}

// Histories have the access of locks' nodes.
func TestHistoryAccess(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	for access, reads := range map[zklock.Access]bool{zklock.Readable: true, zklock.Private: false} {
		own := cfg
		own.Root, own.User, own.Password, own.Access = fmt.Sprint(cfg.Root, access), "ours", "secret", access
		add(t, backend(t, own), "x", "text", 5)
		stranger := own
		stranger.User, stranger.Password, stranger.Access = "", "", zklock.Everybody
		b := backend(t, stranger)
		list, err := b.History(within(t), "x")
		if reads && (err != nil || len(list) != 1) || !reads && !errors.Is(err, driver.ErrRefused) {
			t.Errorf("access %d: a stranger reads %+v, %v", access, list, err)
		}
		wants(t, "a stranger adds", b.AddHistory(within(t), "x", "other", 5), driver.ErrRefused)
	}
}

func TestWhyMissing(t *testing.T) {
	t.Parallel()
	_, cfg := common(t)
	b := backend(t, cfg)
	if cause, err := b.WhyMissing(within(t), "x", time.Second); cause != driver.CauseDeleted || err != nil {
		t.Errorf("WhyMissing = %q, %v", cause, err)
	}
	_, err := b.WhyMissing(within(t), "", time.Second)
	wants(t, "WhyMissing of no name", err, driver.ErrInvalid)
}
