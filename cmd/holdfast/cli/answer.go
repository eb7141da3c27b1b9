package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// worded is an error with another text.
type worded struct {
	text string
	err  error
}

func (w *worded) Error() string { return w.text }
func (w *worded) Unwrap() error { return w.err }

// noAnswer is how clients of stores report a timeout. Users have set none, so they see other words.
var noAnswer = context.DeadlineExceeded.Error()

// unopened words the error of a store that could not be opened: whether the store did not answer,
// and that the URL is from the environment.
func (a *app) unopened(err error, took time.Duration) error {
	within := fmt.Sprintf("within %s", span(max(took.Round(time.Second), time.Second)))
	switch {
	case err == nil:
		return nil
	case !late(err):
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		// Some of several servers refused; err names them.
		err = &worded{strings.ReplaceAll(err.Error(), noAnswer, "no answer "+within), err}
	default:
		text := fmt.Sprintf("%v: %s has not answered %s", holdfast.ErrUnavailable, a.where(), within)
		err = &worded{text, errors.Join(holdfast.ErrUnavailable, err)}
	}
	if at := a.storeAt(); at != "" {
		err = &worded{at + ": " + strings.TrimPrefix(err.Error(), "holdfast: "), err}
	}
	return err
}

// late reports whether err is a timeout.
func late(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// unclosed words the error of the close of a client, and what it means for a lock: the command may have
// released it, and the answer may be all that is missing.
func unclosed(err error) string {
	text := "closing the store: " + strings.TrimPrefix(oneLine(err.Error()), "holdfast: close: ")
	if isOutage(err) || late(err) {
		text += "; a lock that this process still has there ends by itself, with its lease"
	}
	return text
}
