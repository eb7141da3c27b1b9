package quorum_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
	"github.com/holdfast-lock/holdfast/redislock/quorum"
)

// refusingText is put before member_take.lua: the server refuses every third SET of shared exchanges, as
// one may that counts its memory during a script.
const refusingText = `
local redis = (function(real)
  local function refuse(name)
    return name == 'SET' and #KEYS > 1 and real.call('INCR', 'refused') % 3 == 0
  end
  local text = 'OOM the memory is full'
  return {
    call = function(...) if refuse(...) then error(text) end return real.call(...) end,
    pcall = function(...) if refuse(...) then return {err = text} end return real.pcall(...) end,
  }
end)(redis)
`

type refusing struct{ redislock.Conn }

func (c refusing) Run(ctx context.Context, s *redislock.Script, keys, args []string) (redislock.Value, error) {
	if strings.Contains(s.Text, "-- take.lua for a member") {
		text := refusingText + s.Text
		sum := sha1.Sum([]byte(text))
		s = &redislock.Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
	}
	return c.Conn.Run(ctx, s, keys, args)
}

// TestCombinedRefused: servers refuse names in the middle of shared exchanges. All calls are granted,
// because each server is asked for these names again, and what servers hold is what was granted.
func TestCombinedRefused(t *testing.T) {
	t.Parallel()
	const goroutines, rounds = 64, 10
	g := start(t, 3, time.Minute)
	servers := at(g.addrs())
	for i, s := range servers {
		servers[i].Dial = func() (redislock.Conn, error) {
			conn, err := s.Dial()
			return refusing{conn}, err
		}
	}
	b := quorum.New(servers, &quorum.Config{Quarantine: g.quarantine})
	defer func() { _ = b.Close() }()
	s := open(t, b, "combined", time.Minute)
	for round := range rounds {
		var all sync.WaitGroup
		for i := range goroutines {
			all.Go(func() {
				r := try(fmt.Sprint("n", i), fmt.Sprint("r", round, "-", i))
				reply, err := s.Acquire(within(t), r)
				if err != nil || reply.Token == 0 {
					t.Errorf("Acquire: %+v, %v", reply, err)
					return
				}
				if err := s.Release(within(t), driver.Hold{Name: r.Name, ID: r.ID, Token: reply.Token}, 0); err != nil {
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
	for i, s := range g.servers {
		if s.Do("GET refused") == "$-1" {
			t.Errorf("server %d has refused nothing", i+1)
		}
	}
}
