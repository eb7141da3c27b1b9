package sqlite

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/sqllock/internal/host"
)

// folder returns the folder of sockets and session files, which belongs to this user alone. The
// table has each session's addresses, so processes need not use the same folder. folder creates it
// again if a cleaner of temporary folders removed it. If another user has taken its place, folder
// creates another.
func (st *store) folder() (string, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.run != "" && host.PrivateDir(st.run) == nil {
		return st.run, nil
	}
	dir, err := runDir(st.path)
	if err == nil {
		st.run = dir
	}
	return dir, err
}

// runDir creates a folder for sockets next to the file. If another user owns that, or its path is
// too long for sockets, runDir creates one for this user, named after the file. Such a name is
// predictable, so another user may have taken it in a shared folder. Then runDir adds a random
// suffix.
func runDir(path string) (string, error) {
	dir := path + ".run"
	if fits(dir) {
		if err := host.PrivateDir(dir); !errors.Is(err, host.ErrForeign) {
			return dir, err
		}
	}
	dir = elsewhere(path)
	if !fits(dir) {
		return "", fmt.Errorf("%w path: no folder whose path is short enough for sockets: neither %s.run nor %s",
			driver.ErrInvalid, path, dir)
	}
	taken := host.PrivateDir(dir)
	if taken == nil {
		return dir, nil
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+"-")
	if err == nil && !fits(fresh) {
		err = fmt.Errorf("%s is too long for sockets", fresh)
		os.Remove(fresh)
	}
	if err != nil {
		return "",
			fmt.Errorf("no folder for sockets: %w, and none next to it: %w; remove it, or set TMPDIR to a folder of your own",
				taken, err)
	}
	return fresh, nil
}

// elsewhere returns the folder for sockets of a file that cannot have one next to it.
func elsewhere(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(host.OwnDir(), fmt.Sprintf("holdfast-%d-%s", os.Geteuid(), hex.EncodeToString(sum[:8])))
}

// fits reports whether paths of sockets in dir are short enough for the system.
func fits(dir string) bool { return len(dir)+1+nameLen <= host.MaxPath }

// dropFolder removes the folder if it has a random name.
func (st *store) dropFolder() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if strings.HasPrefix(st.run, elsewhere(st.path)+"-") {
		os.Remove(st.run) // fails while a session's files remain
	}
}
