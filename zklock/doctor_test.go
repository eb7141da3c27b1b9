package zklock_test

import (
	"context"
	"crypto/rand"
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

// diagnose returns the findings, and a text with those that are not fine: code, count and severity.
func diagnose(t testing.TB, cfg zklock.Config, ttl time.Duration) (list []driver.Finding, unlike string) {
	t.Helper()
	b, err := zklock.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	list, err = b.Diagnose(ctx, ttl)
	// Its session has expired.
	if errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrClosed) {
		return list, err.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range list {
		if f.Found == "" || (f.Severity != driver.Fine) != (f.Why != "" && f.Do != "") {
			t.Errorf("incomplete: %+v", f)
		}
		// These depend on the installed version and on the machine.
		if f.Severity != driver.Fine && f.Code != "zookeeper.version" && f.Code != "zookeeper.latency" {
			all = append(all, strings.TrimPrefix(f.Code, "zookeeper.")+" "+f.Severity.String())
		}
	}
	slices.Sort(all)
	return list, strings.Join(slices.Compact(all), ", ")
}

// finds calls diagnose until the findings that are not fine are as wanted: a slow server may not
// answer the doctor in time.
func finds(t testing.TB, what string, cfg zklock.Config, ttl time.Duration, want string) (list []driver.Finding) {
	t.Helper()
	var unlike string
	for end := time.Now().Add(limit / 2); time.Now().Before(end); {
		if list, unlike = diagnose(t, cfg, ttl); unlike == want {
			return list
		}
	}
	t.Errorf("%s, not fine: %q; want %q: %+v", what, unlike, want, list)
	return list
}

const synced = "-Dzookeeper.forceSync=yes"

func TestDoctorEnsemble(t *testing.T) {
	t.Parallel()
	e := testenv.ZooKeeperEnsemble(t, 3, synced, "maxSessionTimeout=40000")
	list := finds(t, "an ensemble", zklock.Config{Servers: e.Addrs()}, 10*time.Second, "")
	codes := map[string]int{}
	for _, f := range list {
		codes[strings.TrimPrefix(f.Code, "zookeeper.")]++
	}
	want := map[string]int{"one-ensemble": 1, "ensemble": 1, "servers": 1, "ticks": 1, "session": 1, "version": 3,
		"fsync": 3, "connections": 3, "acl": 1, "permissions": 1, "latency": 1}
	if fmt.Sprint(codes) != fmt.Sprint(want) {
		t.Errorf("looked at %v, want %v", codes, want)
	}
	finds(t, "with two of three servers", zklock.Config{Servers: e.Addrs()[:2]}, 10*time.Second, "servers slows")
	finds(t, "with a session that is lowered", zklock.Config{Servers: e.Addrs()}, 50*time.Second, "session slows")
	i := e.Followers()[0]
	e.Servers[i].Kill()
	list = finds(t, "with a server that is gone", zklock.Config{Servers: e.Addrs()}, 10*time.Second, "reach slows")
	if !slices.ContainsFunc(list, func(f driver.Finding) bool {
		return f.Code == "zookeeper.reach" && f.Server == e.Addrs()[i]
	}) {
		t.Errorf("the finding is about another server: %+v", list)
	}
}

func TestDoctorSingle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings []string
		cfg      zklock.Config
		ttl      time.Duration
		want     string
	}{
		"not forced": {nil, zklock.Config{}, time.Second, "ensemble slows, fsync endangers"},
		"mute": {[]string{synced, "4lw.commands.whitelist=srvr"}, zklock.Config{}, time.Second,
			"connections unknown, ensemble slows, fsync unknown, ticks unknown"},
		"no ACLs": {[]string{synced, "-Dzookeeper.skipACL=yes"}, zklock.Config{}, time.Second,
			"acl slows, ensemble slows"},
		"private": {[]string{synced, "-Dzookeeper.skipACL=yes"},
			zklock.Config{User: "u", Password: "p", Access: zklock.Private}, time.Second,
			"acl endangers, ensemble slows"},
		"deep": {[]string{synced}, zklock.Config{Root: "/not/there/yet", User: "u", Password: "p", Access: zklock.Private},
			time.Second, "ensemble slows"},
		"raised": {[]string{synced, "minSessionTimeout=3000", "maxSessionTimeout=9000", "maxClientCnxns=8"}, zklock.Config{},
			time.Second,
			"connections slows, ensemble slows, session slows"},
		"short": {[]string{synced, "tickTime=2000", "minSessionTimeout=2000", "maxSessionTimeout=9000"}, zklock.Config{},
			3 * time.Second,
			"ensemble slows, ticks endangers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cfg.Servers = []string{testenv.ZooKeeper(t, c.settings...).Addr}
			finds(t, name, c.cfg, c.ttl, c.want)
		})
	}
}

// Servers of two ensembles, and an ensemble with an even number of servers.
func TestDoctorServers(t *testing.T) {
	t.Parallel()
	two := testenv.ZooKeeperEnsemble(t, 2, synced)
	finds(t, "two servers", zklock.Config{Servers: two.Addrs()}, time.Second, "ensemble slows")
	other := testenv.ZooKeeper(t, synced)
	until(t, "servers of two ensembles are seen to be that", func() bool {
		_, unlike := diagnose(t, zklock.Config{Servers: append(two.Addrs(), other.Addr)}, time.Second)
		return strings.Contains(unlike, "one-ensemble endangers")
	})
}

// Another user may have created the root or a folder with too many or too few permissions.
func TestDoctorPermissions(t *testing.T) {
	t.Parallel()
	z := testenv.ZooKeeper(t, synced, longSessions)
	s, err := zk.Dial(within(t), zk.Config{Servers: []string{z.Addr}, Timeout: longTTL})
	must(t, "Dial", err)
	defer func() { _ = s.Close(context.WithoutCancel(t.Context())) }()
	private := zklock.Config{Servers: []string{z.Addr}, Root: "/team", User: "ann", Password: "secret",
		Access: zklock.Private}
	readable, open := private, private
	readable.Access, open.Access, open.User, open.Password = zklock.Readable, zklock.Everybody, "", ""
	owner := zk.DigestACL(zk.PermAll, "ann", "secret")
	const sound, unsound = "ensemble slows", "ensemble slows, permissions endangers"
	for _, c := range []struct {
		root, folder []zk.ACL // nil: missing
		cfg          zklock.Config
		want         string
	}{
		{nil, nil, private, sound},
		{owner, owner, private, sound},
		{owner, nil, readable, sound}, // everybody has fewer rights than the URL gives
		{append(zk.WorldACL(zk.PermRead), owner...), append(zk.WorldACL(zk.PermRead), owner...), readable, sound},
		{zk.WorldACL(zk.PermAll), nil, private, unsound},
		{zk.WorldACL(zk.PermAll), nil, readable, unsound},
		{append(zk.WorldACL(zk.PermRead|zk.PermDelete), owner...), nil, readable, unsound},
		{append(zk.WorldACL(zk.PermAdmin), owner...), nil, private, unsound},
		{owner, append(zk.WorldACL(zk.PermWrite), owner...), private, unsound},
		{append(zk.WorldACL(zk.PermRead), owner...), nil, private, "ensemble slows, permissions slows"},
		{append(zk.DigestACL(zk.PermAll, "bob", "secret"), owner...), nil, private, "ensemble slows, permissions unknown"},
		{zk.DigestACL(zk.PermAll, "bob", "secret"), nil, private, "ensemble slows, permissions unknown"},
		{zk.WorldACL(zk.PermAll), zk.WorldACL(zk.PermAll), open, sound},
		{append(zk.WorldACL(zk.PermRead), owner...), nil, open, "ensemble slows, permissions slows"},
	} {
		at := fmt.Sprintf("root %v, folder %v, access %d", c.root, c.folder, c.cfg.Access)
		// A user with all rights creates the nodes and deletes them; the rights are those of the
		// folder above.
		c.cfg.Root = "/team-" + strings.ToLower(rand.Text())
		if c.root != nil {
			_, _, err := s.Create(within(t), c.cfg.Root, nil, zk.Persistent, c.root)
			must(t, at, err)
		}
		if c.folder != nil {
			owned, err := zk.Dial(within(t), zk.Config{Servers: []string{z.Addr}, Timeout: longTTL,
				Auth: []zk.Auth{zk.DigestAuth("ann", "secret")}})
			must(t, at, err)
			_, _, err = owned.Create(within(t), c.cfg.Root+"/x", nil, zk.Persistent, c.folder)
			must(t, at, err)
			must(t, at, owned.Close(within(t)))
		}
		list := finds(t, at, c.cfg, time.Second, c.want)
		for _, f := range list {
			if strings.Contains(fmt.Sprint(f), owner[0].ID) || f.Code == "zookeeper.permissions" &&
				f.Danger() != (c.want == unsound || len(c.root) == 1 && c.root[0].ID[:3] == "bob") {
				t.Errorf("%s: %+v", at, f)
			}
		}
	}
}

func TestDoctorTLS(t *testing.T) {
	t.Parallel()
	z := testenv.ZooKeeperTLS(t, synced)
	cfg := zklock.Config{Servers: []string{z.Addr}, TLS: z.TLS.Client(t)}
	finds(t, "TLS", cfg, time.Second, "ensemble slows")
}

func TestDoctorErrors(t *testing.T) {
	t.Parallel()
	z := testenv.ZooKeeper(t)
	b, err := zklock.New(zklock.Config{Servers: []string{z.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Diagnose(t.Context(), time.Millisecond); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a TTL of 1ms: %v, want ErrInvalid", err)
	}
	for name, harm := range map[string]func(){"frozen": z.Pause, "killed": z.Kill} {
		harm()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if list, err := b.Diagnose(ctx, time.Second); !errors.Is(err, driver.ErrUnavailable) || len(list) > 0 {
			t.Errorf("%s: %v, %v, want ErrUnavailable", name, list, err)
		}
		cancel()
		z.Continue()
	}
	_ = b.Close()
	if _, err := b.Diagnose(t.Context(), time.Second); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("closed: %v, want ErrClosed", err)
	}
}
