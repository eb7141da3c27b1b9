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

// volume is what a store's data are on.
type volume struct {
	*site
	fill    func()      // it has no room; what has been freed since is taken, too
	relieve func()      // it has room
	felt    func() bool // the store has met it; nil: callers feel it

	// extends: a grant that some servers could not renew is extended to them anew when they have room, under a token larger than the one
	// that a majority had agreed on; the record shows that of most of them.
	extends bool
}

// reaction is what a store does when its disk is full.
type reaction struct {
	refuses bool // some locks that are free
	ends    bool // the server ends itself, and has to be started again
	hangs   bool // commits wait for room, for which the server looks once a minute: it has to be killed
	holds   bool // leases are renewed
	may     bool // leases are renewed or not: as there is room in files that are there, or as soon as another server is found; one of several may end itself
}

// TestDiskFull: a store's disk is full. What a store then grants it has really granted; everything else fails with
// an error that can be tested for. A holder whose lease is not renewed is told before anybody else can have it.
// When there is room again, and a server that ended itself was started again, the store serves.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		start func(t *testing.T) *volume
		want  reaction
		deep  bool
	}{
		"Redis, AOF every second": {func(t *testing.T) *volume {
			return redisSite(t, "--appendonly", "yes", "--appendfsync", "everysec").on(1, mega)
		}, reaction{refuses: true}, false},
		"Redis, AOF always": {func(t *testing.T) *volume {
			return redisSite(t, "--appendonly", "yes", "--appendfsync", "always").on(1, mega)
		}, reaction{refuses: true, ends: true}, false},
		"quorum, minority": {func(t *testing.T) *volume {
			v := quorumSite(t).on(2, mega)
			v.extends = true
			v.felt = func() bool {
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
			return zooKeeperSite(t, "-Dzookeeper.preAllocSize=64").on(1, mega)
		}, reaction{refuses: true, ends: true}, false},
		"ZooKeeper, one of three": {func(t *testing.T) *volume {
			v := ensembleSite(t, "-Dzookeeper.preAllocSize=64").on(1, mega)
			v.felt = func() bool {
				state, err := v.servers[0].(*testenv.ZooKeeperServer).Word("srvr")
				return err != nil || !strings.Contains(state, "Mode: ")
			}
			return v
		}, reaction{may: true}, true},
		"MariaDB": {func(t *testing.T) *volume {
			return mariaDBSite(t).on(1, 24*mega) // half of it is taken when the server starts
		}, reaction{refuses: true, holds: true}, false},
		"MariaDB, binary log": {func(t *testing.T) *volume {
			return mariaDBSite(t, "--log-bin=log").on(1, 24*mega)
		}, reaction{refuses: true, hangs: true}, true},
		"PostgreSQL, tables": {func(t *testing.T) *volume {
			return postgresSite(t, apart).on(1, 4*mega)
		}, reaction{refuses: true, holds: true}, false},
		"PostgreSQL, log": {func(t *testing.T) *volume {
			v := postgresSite(t, apart).on(1, 4*mega)
			db, fill := pool(t, "pgx", v.dsn), v.fill
			v.fill = func() {
				fill()
				for err := error(nil); err == nil; { // what is left of the log's last file is used up
					_, err = db.ExecContext(context.Background(), "SELECT pg_logical_emit_message(false, '', repeat('x', 100000))")
				}
			}
			return v
		}, reaction{refuses: true, ends: true}, false},
		"SQLite": {func(t *testing.T) *volume {
			d := testenv.SmallDisk(t, 2*mega)
			return &volume{site: sqliteSite(t, d.Path), fill: d.Fill, relieve: d.Relieve}
		}, reaction{refuses: true, may: true}, false},
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

// apart keeps PostgreSQL's shared memory off the disk that is to be full.
const apart = "dynamic_shared_memory_type=posix"

// on moves so many of the servers to disks of their own, with room for so many bytes more.
func (s *site) on(n, room int) *volume {
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

// ended are the servers that have ended.
func (s *site) ended() (all []machine) {
	for _, m := range s.servers {
		if _, gone := m.Ended(); gone {
			all = append(all, m)
		}
	}
	return all
}

func full(t *testing.T, v *volume, want reaction) {
	c := v.scene()
	third := v.client()
	granted, refused := c.takeUntilFull(third, v, want.refuses)
	filled := time.Now()
	if want.ends {
		until(t, "the server has ended", func() bool { return len(v.ended()) > 0 })
	}
	switch {
	case want.holds:
		c.keeps(filled.Add(lasting))
	case want.may:
		select {
		case <-c.held.Done():
			c.told()
		case <-time.After(lasting):
		}
	default:
		t.Logf("the holder was told after %v", c.told().Sub(filled))
	}
	for _, m := range v.ended() {
		if text, _ := m.Ended(); !want.ends && !want.may {
			t.Fatalf("the server has ended: %s", words(text))
		}
	}
	v.relieve()
	if want.hangs {
		v.servers[0].Kill()
	}
	for _, m := range v.ended() {
		m.Start()
	}
	l, took := c.again(third, "afterwards")
	t.Logf("%d granted, then %.300s; again %v after there was room", len(granted), fmt.Sprint(errors.Unwrap(refused)), took)
	for _, l := range append(granted, l, c.held) {
		// The store is asked first: what is trusted after that was so before.
		until(t, fmt.Sprintf("the store has token %d, if that is trusted", l.Token()), func() bool {
			r := c.recordOf(l.Name())
			return l.Err() != nil || len(r.Holders) == 1 && (r.Holders[0].Token == l.Token() || v.extends && r.Holders[0].Token > l.Token())
		})
	}
	if want.holds || c.held.Err() == nil {
		c.passesOn()
	} else {
		c.release(c.served())
	}
}

// takeUntilFull lets a client take locks while there is no room: until one of them is not granted, or where that is not to
// be, until many have been since the store has felt it.
func (c *scene) takeUntilFull(client *holdfast.Client, v *volume, refuses bool) (granted []*holdfast.Lease, refused error) {
	c.t.Helper()
	felt := 0
	for i, start := 0, time.Now(); felt < 50; i++ {
		if i == 5000 || time.Since(start) > patience {
			c.t.Fatalf("%d locks were granted, %d since the store has felt that its disk is full", len(granted), felt)
		}
		if i%10 == 0 {
			v.fill()
		}
		// Long names need room sooner.
		ctx, cancel := context.WithTimeout(limited(c.t), ttl)
		l, err := client.Mutex(fmt.Sprintf("new/%d/%0300d", i, i)).TryLock(ctx)
		cancel()
		if err != nil {
			if !passing(err) && !errors.Is(err, holdfast.ErrRefused) && !errors.Is(err, context.DeadlineExceeded) {
				c.t.Errorf("TryLock: %v; want ErrUnavailable, ErrUncertain or ErrRefused", err)
			}
			if refuses {
				return granted, err
			}
			continue // a busy machine may be late to answer
		}
		granted = append(granted, l)
		if felt > 0 || v.felt != nil && v.felt() {
			felt++
		}
	}
	return granted, nil
}
