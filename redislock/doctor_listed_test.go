package redislock

import (
	"context"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/doctor"
)

// changing leads to server a, and to server b as long as there are words left in b.
type changing struct{ b []string }

func (c *changing) Ask(_ context.Context, words ...string) (all []Answer) {
	text := func(s string) Value { return Value{Kind: Text, Text: s} }
	answer := text("role:master\r\n")
	if words[0] == "CONFIG" {
		answer = Value{Kind: List, List: []Value{text(words[2]), text("5000")}}
	}
	all = append(all, Answer{Server: "a", Value: answer})
	if len(c.b) > 0 && c.b[0] == words[0] {
		if len(c.b) > 1 {
			c.b = c.b[1:]
		}
		all = append(all, Answer{Server: "b", Value: answer})
	}
	return all
}

// TestInterviewWhileServersChange: a server that was not asked for its settings is asked again. If it
// is gone, the report does not say that it knows no settings.
func TestInterviewWhileServersChange(t *testing.T) {
	for name, c := range map[string]struct {
		asker   changing
		servers int
	}{
		"it is back":        {changing{[]string{"INFO", "INFO", "CONFIG"}}, 2},
		"it is gone":        {changing{[]string{"INFO", "none"}}, 1},
		"it comes and goes": {changing{[]string{"INFO"}}, 1},
		"it comes":          {changing{[]string{"CONFIG"}}, 1},
	} {
		var f doctor.Findings
		nodes, err := new(Backend).interview(t.Context(), &c.asker, &f)
		if err != nil || len(nodes) != c.servers {
			t.Fatalf("%s: %d servers, %v", name, len(nodes), err)
		}
		for _, n := range nodes {
			n.scriptLimit(&f)
		}
		for _, found := range f.List {
			if found.Severity != driver.Fine {
				t.Errorf("%s: %+v", name, found)
			}
		}
	}
}

// TestUsersWhileServersChange: nothing is said of a server that was not asked for its users.
func TestUsersWhileServersChange(t *testing.T) {
	for _, u := range usersOf(t.Context(), &changing{[]string{"ACL", "none"}}) {
		if u.server != "a" {
			t.Errorf("%+v", u)
		}
	}
}
