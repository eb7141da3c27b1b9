package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/open"
)

// A command under a lock gets HOLDFAST_URL without its password, so that the password is in no list
// of variables that a program logs. A holdfast inside that command still needs it. The outer
// holdfast therefore keeps the whole URL in a file in memory without a name, which no child
// inherits, and HOLDFAST_SECRETS names it: /proc/PID/fd/N. The kernel opens that path only for
// processes that could read the environment of the outer holdfast as well, and only while it runs.

// secretsName is how the kernel shows the file.
const secretsName = "holdfast-secrets"

// maxSecrets bounds the file, in bytes.
const maxSecrets = 64 << 10

// offerSecrets makes url readable for holdfast processes of this user. It returns the value of
// HOLDFAST_SECRETS, "" if url has no password. withdraw ends the offer.
func offerSecrets(url string) (value string, withdraw func(), err error) {
	none := func() {}
	if clean, ok := open.WithoutPassword(url); ok && clean == url || len(url) > maxSecrets {
		return "", none, nil
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(secretsName, flags|unix.MFD_NOEXEC_SEAL) // some systems insist on it
	if errors.Is(err, unix.EINVAL) {                                     // Linux before 6.3
		fd, err = unix.MemfdCreate(secretsName, flags)
	}
	if err != nil {
		return "", none, err
	}
	f := os.NewFile(uintptr(fd), secretsName)
	_, err = f.WriteString(url)
	if err == nil {
		err = f.Chmod(0o400)
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS,
			unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return "", none, errors.Join(err, f.Close())
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), func() { _ = f.Close() }, nil
}

// offeredSecrets returns the URL that HOLDFAST_SECRETS names, if it is public without its password,
// else "". So a URL that somebody has changed gets no password.
func offeredSecrets(public string) string {
	path := os.Getenv(envSecrets)
	rest, ok := strings.CutPrefix(path, "/proc/")
	pid, fd, both := strings.Cut(rest, "/fd/")
	if _, err := strconv.ParseUint(pid, 10, 31); !ok || !both || err != nil {
		return ""
	}
	if _, err := strconv.ParseUint(fd, 10, 31); err != nil {
		return ""
	}
	// The number of a process that has ended may belong to another one, with another file.
	if name, err := os.Readlink(path); err != nil || !strings.HasPrefix(name, "/memfd:"+secretsName+" ") {
		return ""
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return ""
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecrets))
	if clean, ok := open.WithoutPassword(string(text)); err != nil || !ok || clean != public {
		return ""
	}
	return string(text)
}
