package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/holdfast-lock/holdfast/driver"
)

// SQLite's primary result codes that we use.
const (
	codeError      = 1 // the statement does not fit the tables
	codePerm       = 3
	codeBusy       = 5
	codeLocked     = 6
	codeReadOnly   = 8
	codeIOErr      = 10
	codeCorrupt    = 11
	codeFull       = 13
	codeCantOpen   = 14
	codeConstraint = 19
	codeAuth       = 23
	codeNotADB     = 26
)

// Extended result codes of codeIOErr that mean no space: a full disk, a quota, a limit on file
// sizes.
const (
	codeWrite    = codeIOErr | 3<<8
	codeTruncate = codeIOErr | 6<<8
	codeShmSize  = codeIOErr | 19<<8
)

// code returns SQLite's primary result code in err; 0: none. Most Go drivers have it as a method;
// for others, extended searches the text.
func code(err error) int { return extended(err) & 0xff }

// extended returns the extended result code.
func extended(err error) int {
	var c interface{ Code() int }
	if errors.As(err, &c) {
		return c.Code()
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

// noRoom reports whether err means that the file system has no space. Then nothing was done.
func noRoom(err error) bool {
	switch extended(err) {
	case codeFull, codeWrite, codeTruncate, codeShmSize:
		return true
	}
	return false
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
	if noRoom(err) {
		return fmt.Errorf("%w: the file system has no space (a full disk, a quota, or a limit on file sizes): %w",
			driver.ErrUnavailable, err)
	}
	switch code(err) {
	case codeBusy, codeLocked:
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case codeReadOnly:
		return fmt.Errorf("%w: the file or its file system is read-only: %w", driver.ErrRefused, err)
	case codePerm, codeAuth, codeCantOpen:
		return fmt.Errorf("%w: %w", driver.ErrRefused, err)
	case codeCorrupt:
		return fmt.Errorf(
			"%w: the file is damaged; end all processes that use it, and remove it with its -wal and -shm files: %w",
			driver.ErrRefused, err)
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
	return driver.IsOver(err) || errors.Is(err, driver.ErrKind)
}
