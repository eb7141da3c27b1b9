package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// page is the file of a flag, such as --html. It has a temporary name until it is complete.
type page struct {
	flag, path string
	f          *os.File
}

// createPage creates the file at the start, so that a path that cannot be written fails early.
func createPage(flag, path string) (*page, error) {
	if path == "" {
		return &page{}, nil
	}
	target, err := replaceable(path)
	if err != nil {
		return nil, usagef("%s %s: %v", flag, show(path), err)
	}
	f, err := os.CreateTemp(filepath.Dir(target), ".holdfast-page-*")
	if err != nil {
		return nil, usagef("%s %s: %v", flag, show(path), err)
	}
	return &page{flag, target, f}, nil
}

// replaceable returns the path of the file that a page replaces, which may not exist yet. A link
// stays, and leads to the page. Anything but a file is refused: a rename would put a file in the
// place of a device such as /dev/null.
func replaceable(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, nil
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", errors.New("it exists, and is not a file")
	}
	return filepath.EvalSymlinks(path)
}

// write fills the file and renames it to its path.
func (p *page) write(fill func(io.Writer) error) error {
	if p.f == nil {
		return nil
	}
	err := errors.Join(fill(p.f), p.f.Chmod(0o644), p.f.Close())
	if err == nil {
		err = os.Rename(p.f.Name(), p.path)
	}
	if err != nil {
		return usagef("%s %s: %v", p.flag, show(p.path), err)
	}
	return nil
}

// discard removes the file if it was not renamed.
func (p *page) discard() {
	if p.f != nil {
		_ = p.f.Close()
		_ = os.Remove(p.f.Name())
	}
}
