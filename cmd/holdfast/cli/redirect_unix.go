//go:build unix

package cli

import (
	"errors"
	"os"
)

// redirect puts f in the place of standard input, output and error.
func redirect(f *os.File) error {
	var errs []error
	for fd := range 3 {
		errs = append(errs, dup2(int(f.Fd()), fd))
	}
	return errors.Join(errs...)
}
