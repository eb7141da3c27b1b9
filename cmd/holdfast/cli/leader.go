package cli

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

const aboutLeader = `Show who leads the election NAME, with the address and the term: the fencing token of
the leadership. The exit code is 75 if nobody leads.

With --watch, show each change until interrupted, as "holdfast watch" does. It may miss a short
leadership; the terms show that. Each change is one line, also with -o json.`

func (a *app) leaderCommand() *cobra.Command {
	var out format
	var watch bool
	c := &cobra.Command{
		Use:   "leader NAME",
		Short: "Show who leads an election",
		Long:  aboutLeader,
		Args:  exactly("the name of the election"),
		RunE: ours(func(c *cobra.Command, args []string) error {
			if err := checkNames(args[0]); err != nil {
				return err
			}
			if watch {
				return a.watchLeader(args[0], out)
			}
			return a.leader(args[0], out)
		}),
	}
	out.register(c, "text", "json", "jsonl")
	c.Flags().BoolVar(&watch, "watch", false, "show each change until interrupted")
	return c
}

func (a *app) leader(name string, out format) error {
	ctx := context.Background()
	return a.existing(ctx, func(s *session) error {
		l, err := s.Election(name).Leader(ctx)
		if err != nil {
			return err
		}
		if l == nil && out == "text" {
			return &failure{exitBusy, fmt.Errorf("nobody leads %s", show(name))}
		}
		if err := a.showLeader(name, l, out, out == "json"); err != nil || l != nil {
			return err
		}
		return &failure{exitBusy, nil}
	})
}

func (a *app) watchLeader(name string, out format) error {
	return follow(a, func(ctx context.Context, s *session) iter.Seq2[*holdfast.Leader, error] {
		return s.Election(name).Observe(ctx)
	}, func(l *holdfast.Leader) error { return a.showLeader(name, l, out, false) })
}

// showLeader writes one leader, or nil for nobody.
func (a *app) showLeader(name string, l *holdfast.Leader, out format, indent bool) error {
	if out != "text" {
		j := electionJSON{Schema: schema, Name: name}
		if l != nil {
			j.Leader = &leaderJSON{l.Name, l.Address, strconv.FormatUint(l.Term, 10),
				holdersJSON([]holdfast.Holder{l.Holder})[0]}
		}
		return writeJSON(a.stdout, j, indent)
	}
	text := "nobody leads"
	if l != nil {
		text = show(l.Name)
		if strings.Contains(l.Name, " at ") || strings.Contains(l.Name, " leads ") { // words of this line
			text = quote(l.Name)
		}
		if l.Address != "" {
			text += " at " + word(l.Address)
		}
		text += fmt.Sprintf(" leads since %s, term %d", l.Since.UTC().Format(time.RFC3339), l.Term)
	}
	_, err := fmt.Fprintln(a.stdout, text)
	return err
}

// electionJSON is an election in JSON; see recordJSON.
type electionJSON struct {
	Schema string      `json:"schema"`
	Name   string      `json:"name"`
	Leader *leaderJSON `json:"leader"`
}

type leaderJSON struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Term    string `json:"term"`
	holderJSON
}
