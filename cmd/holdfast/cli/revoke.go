package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/child"
)

const reasonUsage = "why, for the holder and for the history (`TEXT` of at most 1024 bytes)"

// checkReason refuses a --reason before the first exchange with the store.
func checkReason(reason string) error {
	const most = 1024
	switch {
	case len(reason) > most:
		return usagef("--reason: it has %d bytes; allowed are %d", len(reason), most)
	case !utf8.ValidString(reason):
		return usagef("--reason: it is not valid UTF-8")
	}
	return nil
}

const aboutRevoke = `Ask the holders of NAME to release it. Nothing is taken from them: they go on until they release.

A holder learns of it within a third of its TTL (5s by default). "holdfast run" and "elect" show a
message, and with --on-revoke send a signal to their command. For a "holdfast hold", its next
"holdfast check" shows the message. A Go program has holdfast.Revoked. Other programs that share the
store learn nothing, and a holder that is stopped learns of it when it runs again. "holdfast break"
takes the lock away.

A holder is told of one request only. If it was asked before, revoke says by whom and when: the new
request is on record ("holdfast info" and "holdfast history" show it), but the holder may not see it.

With --token only the holder of that grant is asked. With --wait holdfast returns when the grants
have ended, or with exit code 75 when the time is over. If nobody holds NAME, the exit code is 77,
also with --wait: nobody could be asked. "holdfast wait" waits until a name is free.`

// revokeOptions are the flags of revoke.
type revokeOptions struct {
	token  uint64
	reason string
	wait   seconds
}

func (a *app) revokeCommand() *cobra.Command {
	o := &revokeOptions{}
	c := &cobra.Command{
		Use:   "revoke NAME",
		Short: "Ask the holder of a lock to release it",
		Long:  aboutRevoke,
		Example: `  holdfast revoke deploy/prod --reason "a fix has to go out"
  holdfast revoke deploy/prod --wait 60 || holdfast info deploy/prod`,
		Args: exactly("the name of the lock"),
		RunE: ours(func(_ *cobra.Command, args []string) error {
			if err := checkReason(o.reason); err != nil {
				return err
			}
			return a.revoke(args[0], o)
		}),
	}
	f := c.Flags()
	f.Uint64Var(&o.token, "token", 0, "ask only the holder of the grant with this fencing `TOKEN`")
	f.StringVar(&o.reason, "reason", "", reasonUsage)
	f.VarP(&o.wait, "wait", "w", "wait until the grants have ended, at most this long (`SECONDS` or a duration)")
	return c
}

func (a *app) revoke(name string, o *revokeOptions) error {
	signals := catchSignals()
	ctx, detach := cancelOnSignal(signals)
	err := a.existing(ctx, func(s *session) error { return s.revoke(ctx, a.stdout, name, o) })
	if caught := detach(); caught != nil {
		return caught
	}
	return err
}

// revoke asks the holders of name, reports those that were asked, and waits for the ends of their grants.
func (s *session) revoke(ctx context.Context, w io.Writer, name string, o *revokeOptions) error {
	before := s.requests(ctx, name)
	holders, err := s.ask(ctx, name, o)
	for _, h := range holders { // also if another could not be asked
		text := fmt.Sprintf("asked: %s, token %d, %s\n", show(name), h.Token, describe(&h))
		if e := before[h.Token]; foreign(&h) {
			text += "Its holder is another program, which holdfast cannot notify.\n"
		} else if e != nil {
			text += fmt.Sprintf("It was asked before, by %s, %s ago%s. A holder is told of one request only: this one is on "+
				"record, but its holder may not see it.\n", who(&e.By), rough(time.Since(e.At)), becauseOf(e.Reason))
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	if err != nil || !o.wait.set {
		return err
	}
	return s.awaitEnds(ctx, name, holders, o.wait.d)
}

// requests returns the first request to each holder of name, by token, as far as the history has it. It
// is a help, so an error is no message.
func (s *session) requests(ctx context.Context, name string) map[uint64]*holdfast.HistoryEntry {
	ctx, cancel := context.WithTimeout(ctx, waitLook)
	defer cancel()
	entries, _ := s.History(ctx, name)
	first := map[uint64]*holdfast.HistoryEntry{}
	for i := range entries {
		if e := &entries[i]; e.Event == holdfast.HistoryAsked && first[e.Token] == nil {
			first[e.Token] = e
		}
	}
	return first
}

// ask asks the holders of name, or the one that o names, and returns those that were asked.
func (s *session) ask(ctx context.Context, name string, o *revokeOptions) (asked []holdfast.Holder, err error) {
	r, err := s.Inspect(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, h := range r.Holders {
		if h.Kept || o.token != 0 && h.Token != o.token {
			continue
		}
		switch err := s.noted(s.Revoke(ctx, name, h.Token, o.reason)); {
		case errors.Is(err, holdfast.ErrGone): // it has ended meanwhile
		case err != nil:
			return asked, err
		default:
			asked = append(asked, h)
		}
	}
	switch {
	case len(asked) > 0:
		return asked, nil
	case o.token != 0:
		return nil, &failure{exitRefused, fmt.Errorf("%s: no holder has token %d; see holdfast info", show(name), o.token)}
	}
	return nil, &failure{exitRefused, fmt.Errorf("%s: nobody holds it%s", show(name), partly(&r))}
}

// awaitEnds waits until the grants of holders have ended.
func (s *session) awaitEnds(ctx context.Context, name string, holders []holdfast.Holder, limit time.Duration) error {
	const look = 200 * time.Millisecond
	end := time.Now().Add(limit)
	for {
		r, err := s.Inspect(ctx, name)
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(r.Holders, func(now holdfast.Holder) bool { // as they are now
			return now.Kept || !slices.ContainsFunc(holders, func(h holdfast.Holder) bool { return now.Token == h.Token })
		})
		if len(left) == 0 {
			return nil
		}
		if !time.Now().Before(end) {
			return &failure{exitBusy, fmt.Errorf("%s is still %s", show(name), describe(&left[0]))}
		}
		select {
		case <-time.After(min(look, time.Until(end))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// noted reports that an operator's act was not recorded, and returns other errors.
func (s *session) noted(err error) error {
	if errors.Is(err, holdfast.ErrUnrecorded) {
		s.say("%s", oneLine(err.Error()))
		return nil
	}
	return err
}

// onRevoke is the flag --on-revoke: the signal that a command gets when somebody asks for its lock.
type onRevoke struct {
	name   string
	signal syscall.Signal // 0: none
}

func (o *onRevoke) String() string { return o.name }
func (o *onRevoke) Type() string   { return "SIGNAL" }

func (o *onRevoke) Set(text string) error {
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	signal, ok := child.Asks()[name]
	if !ok && name != "NONE" {
		return fmt.Errorf("allowed are none, %s", strings.Join(slices.Sorted(maps.Keys(child.Asks())), ", "))
	}
	o.name, o.signal = name, signal
	return nil
}

// tellRevoked reports a request to release a lock of h, until stop is called. Asked is closed when
// there is one.
func (t *task) tellRevoked(h *hold, report func(func())) (asked <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(h.Context(context.Background()))
	asked = holdfast.Revoked(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		what := "; it keeps the lock until the command has ended"
		if name := t.o.onRevoke.name; t.o.onRevoke.signal != 0 {
			what = "; sending " + name + " to the command"
		}
		select {
		case <-asked:
		case <-ctx.Done():
			select {
			case <-asked: // the command may have ended because of it
			default:
				return
			}
		}
		if ctx.Err() != nil {
			what = ""
		}
		for _, l := range h.parts {
			if n := l.Revocation(); n != nil {
				report(func() { t.a.say("%s: asked to release it by %s%s", show(l.Name()), operatorText(n), what) })
			}
		}
	}()
	return asked, func() { // report must not be called after it
		cancel()
		<-done
	}
}

// operatorText returns who has asked, or has broken a lock, and why.
func operatorText(n *holdfast.Notice) string {
	text := who(&n.By)
	if n.Reason != "" {
		text += ": " + quote(n.Reason)
	}
	return text
}
