package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

// listing is the client of a Cluster. change is called before each question, and may change which
// servers the client leads to and which do not answer.
type listing struct {
	servers, silent []string
	change          func(l *listing, commands [][]string)
	vain            map[string]int // exchanges with servers that did not answer
	refuses         string         // a server, and how a command begins that it refuses
}

var errSilent = fmt.Errorf("%w: silence", driver.ErrUncertain)

func (l *listing) AskAll(_ context.Context, servers []string, commands ...[]string) (all []Answers) {
	l.change(l, commands)
	for _, server := range l.servers {
		if servers != nil && !slices.Contains(servers, server) {
			continue
		}
		a := Answers{Server: server, Results: failed(len(commands), errSilent)}
		if slices.Contains(l.silent, server) && len(commands) > 0 {
			l.vain[server]++
		} else {
			for i, words := range commands {
				if a.Results[i] = (Result{Value: scripted(words)}); l.refuses != "" &&
					strings.HasPrefix(server+" "+strings.Join(words, " "), l.refuses) {
					a.Results[i] = Result{Err: driver.ErrRefused}
				}
			}
		}
		all = append(all, a)
	}
	if len(all) == 0 {
		return []Answers{{Results: failed(len(commands), fmt.Errorf("%w: nobody", driver.ErrUnavailable))}}
	}
	return all
}

// scripted is the answer of a server that lets every user do everything.
func scripted(words []string) Value {
	text := func(s string) Value { return Value{Kind: Text, Text: s} }
	list := func(all ...Value) Value { return Value{Kind: List, List: all} }
	switch strings.Join(words[:min(2, len(words))], " ") {
	case "INFO":
		return text("role:master\r\n")
	case "INFO commandstats":
		return text("")
	case "CONFIG GET":
		return list(text(words[2]), text("5000"))
	case "ACL WHOAMI":
		return text("me")
	case "ACL USERS":
		return list(text("me"), text("you"))
	case "ACL GETUSER":
		return list(text("flags"), list(text("on")))
	case "TIME":
		us := time.Now().UnixMicro()
		return list(text(fmt.Sprint(us/1e6)), text(fmt.Sprint(us%1e6)))
	}
	return text("OK")
}

// at changes a listing once, before the first question that begins with words.
func at(words string, change func(*listing)) func(*listing, [][]string) {
	done := false
	return func(l *listing, commands [][]string) {
		if !done && len(commands) > 0 && strings.HasPrefix(strings.Join(commands[0], " "), words) {
			change(l)
			done = true
		}
	}
}

// TestDoctorWhileServersChange: each server that the client led to at some time is examined, or the
// report says that it was not.
func TestDoctorWhileServersChange(t *testing.T) {
	only := func(servers ...string) func(*listing) {
		return func(l *listing) { l.servers = servers }
	}
	silent := func(servers ...string) func(*listing) {
		return func(l *listing) { l.silent = servers }
	}
	both := func(first, then func(*listing, [][]string)) func(*listing, [][]string) {
		return func(l *listing, commands [][]string) { first(l, commands); then(l, commands) }
	}
	for name, c := range map[string]struct {
		change func(*listing, [][]string)
		want   string // the findings of redis.reach
		users  int    // servers whose users are known
		clocks int
	}{
		"nothing changes": {at("NEVER", nil), "", 3, 3},
		"a server comes":  {at("ACL WHOAMI", only("a", "b", "c", "d")), "d unknown: the client found", 3, 3},
		"one comes and does not answer": {both(at("TIME", only("a", "b", "c", "d")), at("TIME", silent("d"))),
			"d unknown: the client found", 3, 3},
		"one is silent from the start":  {at("INFO", silent("b")), "b slows: no answer", 2, 2},
		"one falls silent after INFO":   {at("TIME", silent("c")), "c slows: no answer", 2, 2},
		"one falls silent during users": {at("ACL DRYRUN", silent("c")), "c slows: no answer", 2, 2},
		"one is dropped after INFO":     {at("TIME", only("a", "c")), "b unknown: the client has dropped", 2, 2},
		"one is dropped during users":   {at("ACL GETUSER", only("a", "c")), "b unknown: the client has dropped", 2, 2},
		"one comes back": {both(at("ACL GETUSER", only("a", "c")), at("PING", only("a", "b", "c"))),
			"b unknown: the client has dropped", 2, 2},
		"a silent one is dropped": {both(at("INFO", silent("a")), at("ACL WHOAMI", only("b", "c"))),
			"a slows: no answer", 2, 2},
		"one is replaced": {at("PING", only("a", "b", "d")),
			"c unknown: the client has dropped, d unknown: the client found", 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			l := &listing{servers: []string{"a", "b", "c"}, change: c.change, vain: map[string]int{}}
			var f doctor.Findings
			s := &survey{asking: asking{l}}
			nodes, err := new(Backend).interview(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			first, err := looks(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			new(Backend).lookAtUsers(t.Context(), s, &f)
			if err := failure(s.Ask(t.Context(), "PING")); err != nil {
				t.Fatal(err)
			}
			second, err := looks(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			s.report(t.Context(), &f)
			var reach, users []string
			for _, found := range f.List {
				switch {
				case found.Code == reachCode:
					reach = append(reach, fmt.Sprintf("%s %v: %s", found.Server, found.Severity, found.Found))
				case found.Code == "redis.users" && found.Severity == driver.Fine &&
					strings.HasSuffix(found.Found, "(me, you)"):
					users = append(users, found.Server)
				}
			}
			want := strings.Split(c.want, ", ")
			if c.want == "" {
				want = nil
			}
			if !slices.EqualFunc(reach, want, strings.HasPrefix) {
				t.Errorf("reach: %q, want %q", reach, want)
			}
			clocks := 0
			for server := range first {
				if _, ok := second[server]; ok {
					clocks++
				}
			}
			if len(users) != c.users || clocks != c.clocks {
				t.Errorf("users of %q and %d clocks, want %d and %d", users, clocks, c.users, c.clocks)
			}
			// Settings come with INFO: none is missing.
			for _, n := range nodes {
				if len(n.config) != len(settings) {
					t.Errorf("of %s only these settings are known: %v", n.server, n.config)
				}
			}
			for server, n := range l.vain {
				if n != 1 {
					t.Errorf("%s did not answer, and was asked %d times", server, n)
				}
			}
		})
	}
}

// TestDoctorAllSilent: if no server answers, that is an error and no finding. The last server is asked
// again each time: after a short silence the examination goes on.
func TestDoctorAllSilent(t *testing.T) {
	both := []string{"a", "b"}
	l := &listing{servers: both, silent: both, change: at("NEVER", nil), vain: map[string]int{}}
	s := &survey{asking: asking{l}}
	if nodes, err := new(Backend).interview(t.Context(), s); len(nodes) > 0 || !errors.Is(err, errSilent) {
		t.Errorf("%d servers, %v", len(nodes), err)
	}
	l.silent = nil
	if all := s.Ask(t.Context(), "PING"); len(all) != 2 || all[0].Err != nil || all[1].Err != nil {
		t.Errorf("after the silence: %+v", all)
	}
}

// TestDoctorUsersRefused: whatever question about users a server refuses, its users are unknown.
func TestDoctorUsersRefused(t *testing.T) {
	for _, command := range []string{"ACL WHOAMI", "ACL USERS", "ACL GETUSER", "ACL DRYRUN"} {
		l := &listing{servers: []string{"a", "b"}, change: at("NEVER", nil), refuses: "b " + command}
		for _, u := range usersOf(t.Context(), &survey{asking: asking{l}}, right{mayPublish, nil, [][]string{{"PUBLISH"}}}) {
			if (u.server == "b") != errors.Is(u.denied, driver.ErrRefused) {
				t.Errorf("%s: users of %s: %v", command, u.server, u.denied)
			}
		}
	}
}
