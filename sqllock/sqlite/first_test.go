package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

// Two processes use a new store at the same moment: one looks for the file before the other has
// created it, and for a link at its place after that. The file is no link that leads nowhere.
func TestFirstUseByTwo(t *testing.T) {
	ready, path := storePath(t), storePath(t)
	must(t, openTestOnce(ready))
	e, looks := machine, 0
	e.lstat = func(p string) (os.FileInfo, error) {
		if looks++; looks == 1 { // the other process puts its file in place now
			must(t, os.Rename(ready, p))
		}
		return os.Lstat(p)
	}
	b, err := Open(path, &Config{env: &e})
	if err != nil {
		t.Fatal(err)
	}
	must(t, b.Close())
	if looks == 0 {
		t.Error("nothing was created between the two looks")
	}
	nowhere := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(nowhere+"-missing", nowhere))
	refused(t, nowhere, nil, driver.ErrRefused, "leads nowhere")
}
