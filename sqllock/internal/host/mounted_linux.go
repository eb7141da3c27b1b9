package host

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Mounted reports whether the file at path is a mount point. It returns false on kernels before
// 5.8, which do not report it.
func Mounted(path string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_TYPE, &st)
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // seccomp filters of old containers return EPERM
		return false, nil
	case err != nil:
		return false, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	return st.Attributes_mask&st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}
