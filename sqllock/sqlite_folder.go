package sqllock

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

// folder returns the folder of bells and session files, which is there and is this user's alone. Each session's
// addresses are in the table, so processes need not agree on one. A folder that was removed, by a cleaner of temporary
// folders, is made again; if somebody else has taken its place, another one is.
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

// runDir makes a folder for sockets: beside the file, or if that is another user's or the paths of sockets would be too
// long for the system, one of this user alone whose name follows from the file's. Such a name can be foretold, so
// in a folder that others may write to somebody may have taken it. Then it is followed by what nobody can foretell.
func runDir(path string) (string, error) {
	dir := path + ".run"
	if fits(dir) {
		if err := host.PrivateDir(dir); !errors.Is(err, host.ErrForeign) {
			return dir, err
		}
	}
	dir = elsewhere(path)
	if !fits(dir) {
		return "", fmt.Errorf("%w path: no folder whose path is short enough for sockets: neither %s.run nor %s", driver.ErrInvalid, path, dir)
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
		return "", fmt.Errorf("no folder for sockets: %w, and none beside it: %w; remove it, or set TMPDIR to a folder of your own", taken, err)
	}
	return fresh, nil
}

// elsewhere is the folder for the sockets of a file that can have none beside it.
func elsewhere(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(host.OwnDir(), fmt.Sprintf("holdfast-%d-%s", os.Geteuid(), hex.EncodeToString(sum[:8])))
}

// fits reports whether sockets in dir have paths that are short enough for the system.
func fits(dir string) bool { return len(dir)+1+nameLen <= host.MaxPath }

// dropFolder removes the folder if nobody else can know its name.
func (st *store) dropFolder() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if strings.HasPrefix(st.run, elsewhere(st.path)+"-") {
		os.Remove(st.run) // what a session has left stays
	}
}
