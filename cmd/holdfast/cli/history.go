package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

const aboutHistory = `Show what the store has kept about NAME, oldest first. The table has times in the zone of
this machine (TZ chooses another), with their distance from UTC, or Z; JSON has them in UTC. They are
exact to about an exchange with the store.

  granted     somebody got the lock, after a wait
  adopted     another process took over the grant
  released    the holder released it, after some time
  handed off  the holder offered it to another process
  lost        the holder lost it; REASON says why
  broken      an operator took it away; REASON has the operator's words
  asked       an operator asked the holder to release it

The store always keeps what "break" and "revoke" did. It keeps grants and their ends only of clients
that ask for it: "holdfast run --history 100", or Config.History in Go. Clients add entries after the
store has answered, so an entry may come a moment late. A holder that died adds no end. If the store
takes no entry, run says so on standard error, and COMMAND runs as without --history.`

// historyTime has milliseconds, since several entries often share a second, and the zone.
const historyTime = "2006-01-02 15:04:05.000Z07:00"

func (a *app) historyCommand() *cobra.Command {
	var out format
	c := &cobra.Command{
		Use:   "history NAME",
		Short: "Show who had a lock, who broke it, and why",
		Long:  aboutHistory,
		Args:  exactly("the name of the lock"),
		RunE:  ours(func(_ *cobra.Command, args []string) error { return a.history(args[0], out) }),
	}
	out.register(c, "table", "json", "jsonl")
	return c
}

func (a *app) history(name string, out format) error {
	ctx := context.Background()
	return a.existing(ctx, func(s *session) error {
		entries, err := s.History(ctx, name)
		switch {
		case err != nil:
			return err
		case out != "table":
			return a.historyAsJSON(name, entries, out == "json")
		case len(entries) == 0:
			_, err := fmt.Fprintf(a.stdout, "%s has no history\n", show(name))
			return err
		}
		rows := [][]string{{"TIME", "EVENT", "TOKEN", "WHO", "PROGRAM", "AFTER", "REASON", "NOTE"}}
		for i := range entries {
			e := &entries[i]
			rows = append(rows, []string{
				e.At.Local().Format(historyTime), show(e.Event), tokenText(e.Token), who(&e.By),
				orDash(show(e.By.Program), e.By.Program), tookText(e), orDash(show(e.Reason), e.Reason),
				orDash(show(e.By.Note), e.By.Note),
			})
		}
		return table(a.stdout, rows)
	})
}

// tookText returns how long a grant was waited for or held, or - for neither.
func tookText(e *holdfast.HistoryEntry) string {
	switch e.Event {
	case holdfast.HistoryGranted, holdfast.HistoryReleased, holdfast.HistoryHandedOff, holdfast.HistoryLost:
		return rough(e.Took)
	}
	return "-"
}

// historyJSON is an entry of a history in JSON; see recordJSON.
type historyJSON struct {
	Schema  string            `json:"schema"`
	Name    string            `json:"name"`
	Time    time.Time         `json:"time"`
	Event   string            `json:"event"`
	Token   string            `json:"token"`
	User    string            `json:"user"`
	Host    string            `json:"host"`
	PID     int               `json:"pid"`
	Program string            `json:"program"`
	Note    string            `json:"note,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	TookMS  int64             `json:"took_ms"`
	Reason  string            `json:"reason,omitempty"`
}

// historyAsJSON writes one array, or one entry in a line.
func (a *app) historyAsJSON(name string, entries []holdfast.HistoryEntry, array bool) error {
	list := []historyJSON{} // not null
	for i := range entries {
		e := &entries[i]
		list = append(list, historyJSON{
			Schema: schema, Name: name, Time: e.At.UTC().Round(time.Millisecond), Event: e.Event,
			Token: strconv.FormatUint(e.Token, 10), User: e.By.User, Host: e.By.Host, PID: e.By.PID, Program: e.By.Program,
			Note: e.By.Note, Labels: e.By.Labels, TookMS: e.Took.Milliseconds(), Reason: e.Reason,
		})
	}
	if array {
		return writeJSON(a.stdout, list, true)
	}
	for _, j := range list {
		if err := writeJSON(a.stdout, j, false); err != nil {
			return err
		}
	}
	return nil
}

// historyLines shows what a client logs about entries that the store has not added to a history. For
// everything else that a client logs, the command line has messages of its own.
type historyLines struct {
	slog.Handler
	a *app
}

func (historyLines) Enabled(context.Context, slog.Level) bool { return true }

func (h historyLines) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "holdfast: the store has not added to a history" {
		return nil
	}
	attrs := map[string]slog.Value{}
	r.Attrs(func(a slog.Attr) bool {
		attrs[a.Key] = a.Value
		return true
	})
	if err, ok := attrs["err"].Any().(error); ok {
		h.a.say("%s: not added to its history: %s", show(attrs["lock"].String()), h.a.withAdvice(err))
	}
	return nil
}
