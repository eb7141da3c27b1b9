package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
)

const aboutWatch = `Show each change of the names that begin with PREFIX, until interrupted: first the names in use,
then who takes and frees them. It takes no lock.

A line has the time, the name, what has changed, and the state of the name now:

  held     there is a new grant
  ended    a grant has ended, and the name is not free: others hold it, or it is kept
  free     nobody holds the name any more, or a latch or limit was removed
  waiting  the queue has changed
  count    the count of a latch has changed, or there is a new latch
  changed  something else, such as a limit
  damaged  the record cannot be read

Each line is the difference between two readings of the store's record, so a grant that was given
and ended between them is not shown; the tokens show that. SQLite, Redis (from 6) and ZooKeeper
(from 3.6) say at once what to read. MySQL and PostgreSQL are asked every 0.2 s, others and Redis with
dialect=redisson every third of --ttl. While the store cannot be reached, there is one message, and
watch goes on.`

func (a *app) watchCommand() *cobra.Command {
	var out format
	c := &cobra.Command{
		Use:   "watch [PREFIX]",
		Short: "Show who takes and frees locks, as it happens",
		Long:  aboutWatch,
		Args:  atMostOne,
		RunE: ours(func(c *cobra.Command, args []string) error {
			return a.watch(strings.Join(args, ""), out)
		}),
	}
	out.register(c, "text", "jsonl", "json")
	return c
}

func (a *app) watch(prefix string, out format) error {
	return follow(a, func(ctx context.Context, s *session) iter.Seq2[holdfast.Event, error] {
		return s.Watch(ctx, prefix)
	}, func(e holdfast.Event) error { return a.showEvent(&e, out) })
}

// follow shows what watch yields, until a signal asks to end.
func follow[T any](a *app, watch func(context.Context, *session) iter.Seq2[T, error], show func(T) error) error {
	ctx, detach := cancelOnSignal(catchSignals())
	err := a.existing(ctx, func(s *session) error { return showAll(a, watch(ctx, s), show) })
	if caught := detach(); caught != nil {
		return caught
	}
	return err
}

// showAll shows all of seq, and each error in one message. A store that refuses before it has
// answered refuses for good, so that ends it.
func showAll[T any](a *app, seq iter.Seq2[T, error], show func(T) error) error {
	answered := false
	for item, err := range seq {
		switch {
		case err == nil:
			answered = true
			if err := show(item); err != nil {
				return err
			}
		case !answered && (errors.Is(err, holdfast.ErrRefused) || errors.Is(err, holdfast.ErrInvalid)):
			return err
		default:
			a.say("%s; still watching", oneLine(err.Error()))
		}
	}
	return nil
}

// showEvent writes one event in one line. Only JSON has one for EventReady.
func (a *app) showEvent(e *holdfast.Event, out format) error {
	now := time.Now().UTC()
	if out != "text" { // a stream of JSON has one event in a line
		j := eventJSON{Schema: schema, Time: now.Round(time.Millisecond), Event: string(e.Type), Initial: e.Initial,
			Granted: holdersJSON(e.Granted), Ended: holdersJSON(e.Ended)}
		if e.Type != holdfast.EventReady {
			r := toJSON(&e.Record)
			r.Schema = "" // the event has it
			j.Lock = &r
		}
		return writeJSON(a.stdout, j, false)
	}
	if e.Type == holdfast.EventReady {
		return nil
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %-7s  %s  %s\n", now.Format("2006-01-02T15:04:05.000Z"), e.Type, word(e.Name),
		eventText(e))
	return err
}

// eventText returns what has changed, and the state of the name.
func eventText(e *holdfast.Event) string {
	if e.Damaged != "" {
		return oneLine(e.Damaged)
	}
	var parts []string
	for i := range e.Granted {
		parts = append(parts, "by "+party(&e.Granted[i], e.Kind))
	}
	for i := range e.Ended {
		parts = append(parts, "no longer by "+party(&e.Ended[i], e.Kind))
	}
	switch {
	case e.Kind == "semaphore":
		parts = append(parts, fmt.Sprintf("%d of %d in use", used(&e.Record), e.Limit))
	case e.Kind == "latch":
		parts = append(parts, fmt.Sprintf("%d left", e.Count))
	case e.Kind == "" && len(e.Ended) == 0: // a latch or a limit was removed
		parts = append(parts, "not in use any more")
	case len(e.Holders)+len(e.Partial) == 0:
		parts = append(parts, "nobody holds it")
	case len(e.Holders) == 0:
		parts = append(parts, "at too few servers: "+party(&e.Partial[0], e.Kind))
	case e.Holders[0].Kept:
		parts = append(parts, fmt.Sprintf("kept for another %s", rough(e.Holders[0].Left)))
	case len(e.Granted) == 0:
		parts = append(parts, "held by "+party(&e.Holders[0], e.Kind))
	}
	if e.Waiting > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting", e.Waiting))
	}
	return strings.Join(parts, ", ")
}

// party returns who has a grant, with its token.
func party(h *holdfast.Holder, kind string) string {
	text := who(h)
	if h.Program != "" {
		text += " " + quote(h.Program)
	}
	if h.Shared || kind == "semaphore" {
		text += " " + mode(kind, h)
	}
	return text + " token " + strconv.FormatUint(h.Token, 10)
}

// eventJSON is an event in JSON; see recordJSON.
type eventJSON struct {
	Schema  string       `json:"schema"`
	Time    time.Time    `json:"time"` // of this line
	Event   string       `json:"event"`
	Initial bool         `json:"initial,omitempty"`
	Granted []holderJSON `json:"granted"`
	Ended   []holderJSON `json:"ended"`
	Lock    *recordJSON  `json:"lock,omitempty"` // not with "ready"
}
