package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A page replaces a file, and nothing else; a link leads to it.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	null := filepath.Join(dir, "null")
	for _, err := range []error{
		os.WriteFile(file, []byte("old"), 0o600), os.Symlink("file", link), os.Symlink(os.DevNull, null),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, text string) error {
		p, err := createPage("--html", path)
		if err != nil {
			return err
		}
		defer p.discard()
		return p.write(func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
	}
	for _, path := range []string{filepath.Join(dir, "new"), file, link} {
		if err := write(path, path); err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile(path); string(b) != path {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	for _, path := range []string{dir, null} {
		if err := write(path, "new"); err == nil || !strings.Contains(err.Error(), "is not a file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{link, null} {
		if _, err := os.Readlink(path); err != nil {
			t.Errorf("a link was replaced: %v", err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".holdfast*")); len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}
