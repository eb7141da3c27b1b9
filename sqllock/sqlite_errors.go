package sqllock

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/holdfast-lock/holdfast/driver"
)

// SQLite's primary result codes that mean something to us.
const (
	codePerm     = 3
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	codeIOErr    = 10
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeAuth     = 23
	codeNotADB   = 26
)

// code is SQLite's primary result code in err, 0 if there is none. Drivers for Go have it
// as a method; those that do not still say it in the text.
func code(err error) int {
	var c interface{ Code() int }
	if errors.As(err, &c) {
		return c.Code() & 0xff
	}
	if err != nil {
		for text, n := range map[string]int{
			"database is locked": codeBusy, "readonly database": codeReadOnly, "disk is full": codeFull,
			"unable to open database": codeCantOpen, "not a database": codeNotADB, "disk I/O error": codeIOErr,
			"malformed": codeCorrupt,
		} {
			if strings.Contains(err.Error(), text) {
				return n
			}
		}
	}
	return 0
}

func isBusy(err error) bool {
	c := code(err)
	return c == codeBusy || c == codeLocked
}

// fault adds the driver's sentinel to an error of the database or the file system.
func fault(err error) error {
	if err == nil || known(err) {
		return err
	}
	switch code(err) {
	case codeBusy, codeLocked, codeFull:
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case codePerm, codeReadOnly, codeAuth, codeCantOpen:
		return fmt.Errorf("%w: %w", driver.ErrRefused, err)
	case codeCorrupt:
		return fmt.Errorf("%w: the file is damaged; end all processes that use it, and remove it with its -wal and -shm files: %w", driver.ErrRefused, err)
	case codeNotADB:
		return fmt.Errorf("%w: this file was not made by holdfast: %w", driver.ErrRefused, err)
	case codeIOErr:
		return fmt.Errorf("%w: %w", driver.ErrUncertain, err)
	}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %w", driver.ErrRefused, err)
	case errors.Is(err, fs.ErrClosed):
		return fmt.Errorf("%w: %w", driver.ErrClosed, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// known reports whether err already has a sentinel of package driver.
func known(err error) bool {
	for _, e := range []error{
		driver.ErrGone, driver.ErrTaken, driver.ErrKind, driver.ErrDamaged, driver.ErrUnavailable,
		driver.ErrUncertain, driver.ErrRefused, driver.ErrInvalid, driver.ErrClosed,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// isVerdict reports whether err is an answer about the state, not a failure to get one.
func isVerdict(err error) bool {
	return errors.Is(err, driver.ErrGone) || errors.Is(err, driver.ErrTaken) || errors.Is(err, driver.ErrKind)
}
