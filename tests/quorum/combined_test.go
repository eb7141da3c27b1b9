package quorum_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
)

// refusing is a Conn to a server that refuses names in the middle of shared exchanges.
type refusing struct{ redislock.Conn }

func (c refusing) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	if strings.Contains(s.Text, "-- take.lua for a member") {
		text := testenv.RefusesSets + s.Text
		sum := sha1.Sum([]byte(text))
		s = &redislock.Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
	}
	return c.Conn.Run(ctx, s, keys, args)
}

// TestCombinedRefused: servers refuse names in the middle of shared exchanges. All calls are granted,
// because each server is asked for these names again, and what servers hold is what was granted.
func TestCombinedRefused(t *testing.T) {
	t.Parallel()
	const goroutines, rounds, most = 64, 10, 300
	g := start(t, 3, time.Minute)
	servers := at(g.addrs())
	for i, s := range servers {
		servers[i].Dial = func(ctx context.Context) (redislock.Conn, error) {
			conn, err := s.Dial(ctx)
			return refusing{conn}, err
		}
	}
	b := quorum.New(servers, &quorum.Config{Quarantine: g.quarantine})
	defer func() { _ = b.Close() }()
	s := open(t, b, "combined", time.Minute)
	idle := func() (servers []int) { // that have refused nothing
		for i, s := range g.servers {
			if s.Do("GET refused") == "$-1" {
				servers = append(servers, i+1)
			}
		}
		return servers
	}
	for round := 0; round < rounds || len(idle()) > 0 && round < most; round++ {
		var all sync.WaitGroup
		for i := range goroutines {
			all.Go(func() {
				r := try(fmt.Sprint("n", i), fmt.Sprint("r", round, "-", i))
				asked := time.Now()
				reply, err := s.Acquire(within(t), r)
				for n := 0; late(err, asked) && n < 10; n++ {
					if errors.Is(err, driver.ErrSpent) {
						r.ID = fmt.Sprint("r", round, "-", i, "-", n)
					}
					asked = time.Now()
					reply, err = s.Acquire(within(t), r)
				}
				if err != nil || reply.Token == 0 {
					t.Errorf("Acquire: %+v, %v", reply, err)
					return
				}
				asked = time.Now()
				err = s.Release(within(t), driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}, 0)
				if err != nil && !late(err, asked) {
					t.Errorf("Release: %v", err)
				}
			})
		}
		all.Wait()
	}
	for i := range goroutines {
		for server := range g.servers {
			g.shows(t, server, fmt.Sprint("n", i), "no holder", func(r driver.Record) bool { return len(r.Holders) == 0 },
				renewals(t, s)) // a renewal sends the cancellations that a server has missed
		}
	}
	if servers := idle(); len(servers) > 0 {
		t.Errorf("servers %v have refused nothing", servers)
	}
}
