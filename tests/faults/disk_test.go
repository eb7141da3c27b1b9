package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

const mega = 1 << 20

// volume is the disk of a store's data.
type volume struct {
	*site
	fill    func()      // takes all free space, including what has been freed since
	relieve func()      // gives the space back
	noticed func() bool // whether the store has noticed; nil: callers notice

	// extends: some servers could not renew a grant. When there is room again, it is written to
	// them again, with a token larger than the one that a majority had agreed on. The record shows
	// the token of most servers.
	extends bool
}

// reaction is what a store does when its disk is full.
type reaction struct {
	refuses bool // refuses some free locks
	ends    bool // the server ends itself, and must be started again
	hangs   bool // commits wait for space, which the server checks once a minute: it must be killed
	holds   bool // leases are renewed

	// either: leases may be renewed or not, because existing files may have space, or because the
	// client finds another server. One of several servers may end itself.
	either bool
}

// TestDiskFull: a store's disk is full. What the store then grants is really granted; everything
// else fails with an error that callers can test for. A holder whose lease is not renewed learns of
// that before another client can have the lock. When there is space again, and servers that ended
// themselves were started again, the store serves.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		start func(t *testing.T) *volume
		want  reaction
		deep  bool
	}{
		"Redis, AOF every second": {func(t *testing.T) *volume {
			return redisSite(t, "--appendonly", "yes", "--appendfsync", "everysec").onDisks(1, mega)
		}, reaction{refuses: true}, false},
		"Redis, AOF always": {func(t *testing.T) *volume {
			return redisSite(t, "--appendonly", "yes", "--appendfsync", "always").onDisks(1, mega)
		}, reaction{refuses: true, ends: true}, false},
		"quorum, minority": {func(t *testing.T) *volume {
			v := quorumSite(t).onDisks(2, mega)
			v.extends = true
			v.noticed = func() bool {
				for _, m := range v.servers[:2] {
					if m.(*testenv.RedisServer).Info("persistence")["aof_last_write_status"] != "err" {
						return false
					}
				}
				return true
			}
			return v
		}, reaction{holds: true}, false},
		"ZooKeeper": {func(t *testing.T) *volume {
			return zooKeeperSite(t, "-Dzookeeper.preAllocSize=64").onDisks(1, mega)
		}, reaction{refuses: true, ends: true}, false},
		"ZooKeeper, one of three": {func(t *testing.T) *volume {
			v := ensembleSite(t, "-Dzookeeper.preAllocSize=64").onDisks(1, mega)
			v.noticed = func() bool {
				state, err := v.servers[0].(*testenv.ZooKeeperServer).Word("srvr")
				return err != nil || !strings.Contains(state, "Mode: ")
			}
			return v
		}, reaction{either: true}, true},
		"MariaDB": {func(t *testing.T) *volume {
			return mariaDBSite(t).onDisks(1, 24*mega) // the server takes half of it when it starts
		}, reaction{refuses: true, holds: true}, false},
		"MariaDB, binary log": {func(t *testing.T) *volume {
			return mariaDBSite(t, "--log-bin=log").onDisks(1, 24*mega)
		}, reaction{refuses: true, hangs: true}, true},
		"PostgreSQL, tables": {func(t *testing.T) *volume {
			return postgresSite(t, apart).onDisks(1, 4*mega)
		}, reaction{refuses: true, holds: true}, false},
		"PostgreSQL, log": {func(t *testing.T) *volume {
			v := postgresSite(t, apart).onDisks(1, 4*mega)
			db, fill := pool(t, "pgx", v.dsn), v.fill
			v.fill = func() {
				fill()
				for err := error(nil); err == nil; { // uses up the rest of the log's last file
					_, err = db.ExecContext(context.Background(), "SELECT pg_logical_emit_message(false, '', repeat('x', 100000))")
				}
			}
			return v
		}, reaction{refuses: true, ends: true}, false},
		"SQLite": {func(t *testing.T) *volume {
			d := testenv.SmallDisk(t, 2*mega)
			return &volume{site: sqliteSite(t, d.Path), fill: d.Fill, relieve: d.Relieve}
		}, reaction{refuses: true, either: true}, false},
	} {
		if test.deep && !testenv.Deep() {
			continue
		}
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			full(t, test.start(t), test.want)
		})
	}
}

// apart keeps PostgreSQL's shared memory off the full disk.
const apart = "dynamic_shared_memory_type=posix"

// onDisks moves n of the servers to disks of their own, with space for room more bytes.
func (s *site) onDisks(n, room int) *volume {
	s.t.Helper()
	var disks []*testenv.Disk
	for _, m := range s.servers[:n] {
		disks = append(disks, m.OwnDisk(room))
	}
	each := func(f func(*testenv.Disk)) func() {
		return func() {
			for _, d := range disks {
				f(d)
			}
		}
	}
	return &volume{site: s, fill: each((*testenv.Disk).Fill), relieve: each((*testenv.Disk).Relieve)}
}

// ended returns the servers that have ended.
func (s *site) ended() (all []machine) {
	for _, m := range s.servers {
		if _, gone := m.Ended(); gone {
			all = append(all, m)
		}
	}
	return all
}

func full(t *testing.T, v *volume, want reaction) {
	c := v.newFixture()
	third := v.client()
	granted, refused := c.takeUntilFull(third, v, want)
	filled := time.Now()
	if want.ends {
		until(t, "the server has ended", func() bool { return len(v.ended()) > 0 })
	}
	switch {
	case want.holds:
		c.staysTrusted(filled.Add(watchTime))
	case want.either:
		select {
		case <-c.held.Done():
			c.waitLost()
		case <-time.After(watchTime):
		}
	default:
		t.Logf("the holder learned of it after %v", c.waitLost().Sub(filled))
	}
	for _, m := range v.ended() {
		if text, _ := m.Ended(); !want.ends && !want.either {
			t.Fatalf("the server has ended: %s", shorten(text))
		}
	}
	v.relieve()
	if want.hangs {
		v.servers[0].Kill()
	}
	for _, m := range v.ended() {
		m.Start()
	}
	l, took := c.lockAgain(third, "afterwards")
	t.Logf("%d granted, then %.300s; again %v after there was space", len(granted), fmt.Sprint(errors.Unwrap(refused)),
		took)
	for _, l := range append(granted, l, c.held) {
		// The store is asked first: if the lease is trusted afterwards, it was trusted before.
		until(t, fmt.Sprintf("the store has token %d, if the lease is trusted", l.Token()), func() bool {
			r := c.recordOf(l.Name())
			return l.Err() != nil || len(r.Holders) == 1 &&
				(r.Holders[0].Token == l.Token() || v.extends && r.Holders[0].Token > l.Token())
		})
	}
	if want.holds || c.held.Err() == nil {
		c.handOver()
	} else {
		c.release(c.waitGranted())
	}
}

// endsNow reports whether a server has ended, or ends in a moment: its connections may end before it.
func (v *volume) endsNow() bool {
	for end := time.Now().Add(time.Second); len(v.ended()) == 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	return len(v.ended()) > 0
}

// takeUntilFull lets a client take locks while the disk is full. It ends when one is not granted, and the
// server has ended, if it shall. If the store refuses none, it ends when many were granted after the store
// noticed.
func (c *fixture) takeUntilFull(client *holdfast.Client, v *volume, want reaction) (
	granted []*holdfast.Lease, refused error) {
	c.t.Helper()
	felt := 0
	for i, start := 0, time.Now(); felt < 50; i++ {
		if i == 5000 || time.Since(start) > limit {
			c.t.Fatalf("%d locks were granted, %d since the store noticed that its disk is full", len(granted), felt)
		}
		if i%10 == 0 {
			v.fill()
		}
		// Long names need space sooner.
		ctx, cancel := context.WithTimeout(limited(c.t), ttl)
		l, err := client.Mutex(fmt.Sprintf("new/%d/%0300d", i, i)).TryLock(ctx)
		cancel()
		if err != nil {
			if !transient(err) && !errors.Is(err, holdfast.ErrRefused) && !errors.Is(err, context.DeadlineExceeded) {
				c.t.Errorf("TryLock: %v; want ErrUnavailable, ErrUncertain or ErrRefused", err)
			}
			if want.refuses && (!want.ends || v.endsNow()) {
				return granted, err
			}
			continue // the answer may be late on a busy machine
		}
		granted = append(granted, l)
		if felt > 0 || v.noticed != nil && v.noticed() {
			felt++
		}
	}
	return granted, nil
}
