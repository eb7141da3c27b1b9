//go:build !unix

package cli

import (
	"errors"
	"os"
)

func redirect(*os.File) error { return errors.New("this system has no keepers") }
