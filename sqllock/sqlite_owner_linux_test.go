package sqllock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// TestSQLiteForeignFolder finds, as root, the folder of sockets made by another user, who could
// exchange everything in it.
func TestSQLiteForeignFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another user's folder needs root")
	}
	t.Setenv("TMPDIR", t.TempDir())
	path := storePath(t)
	must(t, os.Mkdir(path+".run", 0o700))
	must(t, os.Chown(path+".run", 65534, 65534))
	b := openTest(t, path, nil)
	openTestSession(t, b, time.Minute)
	if strings.HasPrefix(b.st.run, path) {
		t.Errorf("sockets in %s, a folder of another user", b.st.run)
	}
	t.Cleanup(func() { os.RemoveAll(b.st.run) })

	long := filepath.Join(t.TempDir(), strings.Repeat("d", 120), "locks.db")
	dir, err := runDir(long)
	must(t, err)
	must(t, os.Chown(dir, 65534, 65534))
	refused(t, long, nil, driver.ErrRefused, "belongs to user 65534")
	if _, err := runDir(long); !errors.Is(err, os.ErrPermission) {
		t.Errorf("%v; want os.ErrPermission", err)
	}
	must(t, os.Remove(dir))
}
