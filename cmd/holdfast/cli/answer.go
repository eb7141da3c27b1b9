package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// worded is an error in other words.
type worded struct {
	text string
	err  error
}

func (w *worded) Error() string { return w.text }
func (w *worded) Unwrap() error { return w.err }

// noAnswer is how clients of stores say that some limit was over. The user has set none.
var noAnswer = context.DeadlineExceeded.Error()

// unopened is the error of a store that could not be opened within a time. It says that the store did
// not answer, if that was it, and where the URL is from.
func (a *app) unopened(err error, took time.Duration) error {
	within := fmt.Sprintf("within %s", span(max(took.Round(time.Second), time.Second)))
	switch {
	case err == nil:
		return nil
	case !late(err):
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET): // of some servers; it says of which
		err = &worded{strings.ReplaceAll(err.Error(), noAnswer, "no answer "+within), err}
	default:
		err = fmt.Errorf("%w: %s has not answered %s", holdfast.ErrUnavailable, a.where(), within)
	}
	if a.store == "" && os.Getenv(envURL) != "" {
		err = &worded{envURL + ": " + strings.TrimPrefix(err.Error(), "holdfast: "), err}
	}
	return err
}

// late reports whether err came of waiting for an answer.
func late(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
