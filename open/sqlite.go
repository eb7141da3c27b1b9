package open

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver that package sqlite uses

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock/sqlite"
)

func openSQLite(path string) (*Store, error) {
	b, err := sqlite.Open(path, nil)
	if err != nil {
		if errors.Is(err, driver.ErrRefused) {
			if whose := foreignFile(path); whose != "" {
				err = fmt.Errorf("%w; %s", err, whose)
			}
		}
		return nil, classify(err, driver.ErrUnavailable)
	}
	// One name for one file, for any spelling of its path. The file exists by now.
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return &Store{b, "sqlite:" + path}, nil
}

// hasFolder returns an error if the folder of a file does not exist. A path with a typing error would
// make a store of its own, and guard nothing.
func hasFolder(path string) error {
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w store URL: there is no folder %s: correct the path, or make the folder (mkdir -p)",
			driver.ErrInvalid, dir)
	}
	return nil
}

// Exists returns an error if the URL names a file that does not exist, for callers who create
// nothing: Open would create it. The embedded store of the user may be missing: it has no locks then.
func Exists(url string) error {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok || !strings.EqualFold(scheme, "sqlite") {
		return nil
	}
	path, err := sqlitePath(rest)
	if err != nil {
		return nil // Open reports it
	}
	if _, err = os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no file %s; the first \"holdfast run\" creates it", driver.ErrRefused, path)
	}
	return nil
}

// sqlitePath returns the path in sqlite:PATH, sqlite:///PATH or sqlite://localhost/PATH.
func sqlitePath(rest string) (string, error) {
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		host, path, _ := strings.Cut(after, "/")
		if host != "" && host != "localhost" {
			return "", invalid("a relative path is written sqlite:PATH, an absolute one sqlite:/PATH or sqlite:///PATH")
		}
		rest = "/" + path
	}
	if strings.Trim(rest, "/") == "" {
		return "", invalid("sqlite: needs the path of a file")
	}
	if strings.HasSuffix(rest, "/") {
		return "", invalid("sqlite: needs the path of a file, not of a folder")
	}
	return rest, nil
}

// HasDefault reports whether this user has an embedded store. It creates nothing.
func HasDefault() bool {
	dir, err := stateFolder()
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(dir, "locks.db"))
	return err == nil
}

// defaultPath returns the path of the embedded store of this user.
func defaultPath() (string, error) {
	dir, err := stateFolder()
	if err != nil {
		return "", err
	}
	// Created with this mode, so that no other user may read it even if its parents are open.
	if err = mayCreate(dir); err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = ownFolder(dir)
	}
	if err != nil {
		return "",
			fmt.Errorf(
				"%w: the folder of the embedded store: %w; XDG_STATE_HOME names another folder, --store or HOLDFAST_URL another store", driver.ErrRefused, err)
	}
	return filepath.Join(dir, "locks.db"), nil
}

// stateFolder returns the path of the folder of the embedded store.
func stateFolder() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // the specification says to ignore a relative one
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return "",
				fmt.Errorf(
					"%w environment: no home folder for the embedded store (set HOME or XDG_STATE_HOME to an absolute path, or choose a store with --store or HOLDFAST_URL)", driver.ErrInvalid)
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "holdfast"), nil
}
