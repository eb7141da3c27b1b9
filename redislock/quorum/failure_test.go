package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/redislock"
)

func ofThree() *Backend {
	var servers []Server
	dial := func(context.Context) (redislock.Conn, error) { return nil, driver.ErrClosed }
	for _, name := range []string{"h:1", "h:2", "h:3"} {
		servers = append(servers, Server{Name: name, Dial: dial})
	}
	return New(servers, nil)
}

// Each server is named once, a fact about several servers is said once, and the number of servers is not
// larger or smaller than what is known.
func TestFailureText(t *testing.T) {
	refused := func(server string) error {
		return ofServer(server, fmt.Errorf("redis %s: %w: dial tcp %s: connect: connection refused", server,
			driver.ErrUnavailable, server))
	}
	late := func(server string) error {
		return ofServer(server, fmt.Errorf("redis %s: %w after 2s: no answer in time", server, driver.ErrUnavailable))
	}
	full := func(server string) error {
		return ofServer(server, fmt.Errorf("%w: the memory is full", driver.ErrRefused))
	}
	young := func(server string, left time.Duration) error {
		return ofServer(server, &redislock.Newborn{Left: left})
	}
	const vote = "the server has started or lost its data, or its clock was set, and has no vote for another 1m0s"
	for _, c := range []struct {
		want string
		all  bool // servers have been asked
		errs []error
	}{
		{"store unavailable: no majority: at least 2 of 3 servers failed: h:1 and h:3: connection refused", false,
			[]error{refused("h:3"), refused("h:1")}},
		{"store unavailable: no majority: 2 of 3 servers failed: h:1 and h:2: no answer in time (2s)", true,
			[]error{late("h:1"), ofServer("h:2", late("h:2"))}},
		{"store unavailable: all 3 servers failed: h:1 and h:3: connection refused; h:2: refused by the store: the memory is full", true,
			[]error{refused("h:1"), full("h:2"), fmt.Errorf("%w", refused("h:3"))}},
		{"store unavailable: 1 of 3 servers failed: h:1: connection refused", true, []error{refused("h:1")}},
		{"refused by the store: no majority: at least 2 of 3 servers failed: h:1 and h:2: the memory is full", false,
			[]error{full("h:1"), full("h:2")}},
		{"store unavailable: no majority: at least 2 of 3 servers failed: h:1 and h:2: " + vote, false,
			[]error{young("h:1", time.Minute-time.Millisecond), young("h:2", time.Minute-9*time.Millisecond)}},
		{"outcome unknown: no majority: at least 2 of 3 servers failed: h:1: its clock was set, or not yet compared with the others'; x",
			false, []error{ofServer("h:1", &moved{}), errors.New("x")}},
	} {
		b := ofThree()
		b.used.Store(true)
		err := b.verdict(c.errs)
		if c.all {
			err = b.verdictOfAll(c.errs)
		}
		if err.Error() != c.want {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
}

// The pause before a server in quarantine is asked again does not shorten the quarantine that errors name.
func TestQuarantineLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := three(t)
		p := s.endpoints[0]
		ask := func(f func(member) error) {
			t.Helper()
			var newborn *redislock.Newborn
			if err := p.do(s.clock.now().Microseconds(), f); !errors.As(err, &newborn) ||
				newborn.Left > 40*time.Second || newborn.Left < 39*time.Second {
				t.Errorf("%v; want a quarantine of 40 s", err)
			}
		}
		ask(func(member) error { return &redislock.Newborn{Left: 40 * time.Second} })
		time.Sleep(100 * time.Millisecond)
		ask(func(member) error { t.Error("the server was asked"); return nil })
	})
}

// Only a quorum of which no server has been seen to vote may be new.
func TestHintOfNewQuorum(t *testing.T) {
	b := ofThree()
	var errs []error
	for i, s := range b.servers {
		birth := redislock.Birth{Left: time.Minute, Clock: time.Hour}
		watch{b.clocks, i}.Looked(time.Now(), birth)
		errs = append(errs, ofServer(s.Name, &redislock.Newborn{Left: birth.Left}))
	}
	if text := b.verdict(errs).Error(); !strings.HasSuffix(text, "; "+errNew.Error()) {
		t.Errorf("no server votes: %s", text)
	}
	watch{b.clocks, 2}.Looked(time.Now(), redislock.Birth{Clock: time.Hour})
	if text := b.verdict(errs[:2]).Error(); strings.Contains(text, "init") {
		t.Errorf("a server votes: %s", text)
	}
}
