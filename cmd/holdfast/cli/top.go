package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// redraw is how often ls --watch shows the list.
const redraw = 2 * time.Second

// watchList shows the list on the terminal until a signal asks to end. While the store does not
// answer, it shows the last list, and why.
func (a *app) watchList(prefix string, o *lsOptions) error {
	out, ok := a.stdout.(*output)
	if !ok || width(out.to) == 0 {
		return usagef("--watch and top need a terminal; holdfast watch is for files and programs")
	}
	ctx, detach := cancelOnSignal(catchSignals())
	err := a.existing(ctx, func(s *session) error {
		tick := time.NewTicker(redraw)
		defer tick.Stop()
		var last []holdfast.Record
		for first := true; ; first = false {
			all, err := o.list(ctx, s, prefix)
			switch {
			case ctx.Err() != nil, err != nil && (first || errors.Is(err, holdfast.ErrRefused)):
				return err
			case err == nil:
				last = all
			}
			columns, lines := size(out.to)
			if _, err := io.WriteString(out, screen(s.place, last, err, o, columns, lines)); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
	if caught := detach(); caught != nil {
		return caught
	}
	return err
}

// screen returns what clears a terminal of this size and shows the list there.
func screen(place string, all []holdfast.Record, err error, o *lsOptions, columns, lines int) string {
	waiting := 0
	for i := range all {
		waiting += all[i].Waiting
	}
	head := fmt.Sprintf("%s  %s: %d in use, %d waiting", time.Now().Format(time.TimeOnly), show(place), len(all), waiting)
	text := []string{head}
	if err != nil {
		text = append(text, "the list is an older one: "+oneLine(err.Error()))
	}
	if len(all) > 0 {
		var b bytes.Buffer
		_ = table(&b, o.rows(all)) // a buffer takes everything
		text = append(text, strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")...)
	}
	if room := max(lines-1, 3); len(text) > room { // the last line is for the cursor
		text = append(text[:room-1], fmt.Sprintf("… and %d more", len(text)-room+1))
	}
	const home, clearLine, clearRest = "\x1b[H", "\x1b[K", "\x1b[J"
	for i := range text {
		text[i] = cut(text[i], columns)
	}
	return home + strings.Join(text, clearLine+"\n") + clearLine + "\n" + clearRest
}
