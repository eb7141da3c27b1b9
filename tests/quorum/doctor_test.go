package quorum_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
)

// diagnosed are the codes that are not fine, with their servers, except those that depend on the
// machine.
func diagnosed(t *testing.T, b *quorum.Backend) (all []string, err error) {
	t.Helper()
	list, err := b.Diagnose(within(t), time.Second)
	for _, f := range list {
		if (f.Severity == driver.Fine) != (f.Why == "" && f.Do == "") || f.Found == "" {
			t.Errorf("incomplete: %+v", f)
		}
		if f.Severity != driver.Fine && f.Code != "redis.latency" && f.Code != "redis.clock" && f.Code != "redis.users" {
			all = append(all, strings.TrimSpace(f.Code+" "+f.Severity.String()+" "+f.Server))
		}
	}
	slices.Sort(all)
	return all, err
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	g := start(t, 4, time.Minute, "--appendonly", "no")
	expect := func(b *quorum.Backend, want ...string) {
		t.Helper()
		if got, err := diagnosed(t, b); err != nil || !slices.Equal(got, want) {
			t.Errorf("Diagnose: %q, %v; want %q", got, err, want)
		}
	}
	b := g.backend(g.addrs())
	expect(b, "quorum.size slows")
	g.servers[1].Do("FLUSHALL")
	g.servers[2].Do("CONFIG SET maxmemory 100mb")
	g.servers[2].Do("CONFIG SET maxmemory-policy allkeys-lru")
	expect(b, "quorum.quarantine slows server 2", "quorum.size slows", "redis.eviction endangers server 3",
		"redis.flushes unknown server 2")
	twice := at(g.addrs())
	twice[3].Dial = twice[0].Dial
	other := quorum.New(twice, &quorum.Config{Quarantine: time.Minute})
	t.Cleanup(func() { _ = other.Close() })
	expect(other, "quorum.quarantine slows server 2", "quorum.servers endangers", "quorum.size slows",
		"redis.eviction endangers server 3", "redis.flushes unknown server 2")
	g.servers[0].Kill()
	want := []string{"quorum.majority endangers", "quorum.quarantine slows server 2", "quorum.reach slows server 1",
		"quorum.size slows", "redis.eviction endangers server 3", "redis.flushes unknown server 2"}
	if got, err := diagnosed(t, b); !passing(err) || !slices.Equal(got, want) { // three of four must vote
		t.Errorf("Diagnose without a majority that votes: %q, %v; want %q and ErrUnavailable", got, err, want)
	}
	for _, f := range examinedBy(t, b) {
		if strings.Contains(f.Why, "fewer of the others") && f.Code != "redis.eviction" {
			t.Errorf("without a majority: %+v", f)
		}
	}
	g.servers[3].Kill()
	if got, err := diagnosed(t, b); !passing(err) || !slices.Contains(got, "quorum.reach slows server 4") {
		t.Errorf("Diagnose without a majority: %q, %v; want ErrUnavailable", got, err)
	}
	if _, err := b.Diagnose(within(t), time.Hour); !errors.Is(err, driver.ErrInvalid) ||
		!strings.Contains(err.Error(), "quarantine") {
		t.Errorf("Diagnose for a TTL above the quarantine: %v; want ErrInvalid", err)
	}
}

func examinedBy(t *testing.T, b *quorum.Backend) []driver.Finding {
	t.Helper()
	list, _ := b.Diagnose(within(t), time.Second)
	return list
}

// A finding about one server names its cause, and says what that means for a quorum.
func TestDoctorOfAMinority(t *testing.T) {
	t.Parallel()
	g := start(t, 3, time.Minute)
	b := g.backend(g.addrs())
	g.servers[0].Do("ACL SETUSER default -evalsha")
	g.servers[1].Do("CONFIG SET maxmemory 1")
	found := map[string]driver.Finding{}
	for _, f := range examinedBy(t, b) {
		if f.Severity != driver.Fine {
			found[f.Code+" "+f.Server] = f
		}
	}
	if f := found["quorum.reach server 1"]; !strings.Contains(f.Found, "(NOPERM ") ||
		strings.Contains(f.Found, "server 1") || !strings.Contains(f.Do, "refusal") ||
		!strings.Contains(f.Why, "fewer of the others") {
		t.Errorf("a missing right: %+v", f)
	}
	if f := found["quorum.majority "]; f.Severity != driver.Slows ||
		!strings.HasPrefix(f.Found, "2 of 3 servers can be used, but 1 of these refuse new locks") {
		t.Errorf("one server refuses this user, and one new locks: %+v", f)
	}
	if f := found["redis.eviction server 2"]; !strings.Contains(f.Found, " of 1 bytes") ||
		!strings.Contains(f.Why, "has no vote") {
		t.Errorf("a full memory: %+v", f)
	}
	g.servers[2].Do("FLUSHALL")
	for _, f := range examinedBy(t, b) {
		if f.Code == "quorum.quarantine" && f.Severity != driver.Fine && strings.Contains(f.Do, "init") {
			t.Errorf("a used quorum: %+v", f)
		}
	}
}
