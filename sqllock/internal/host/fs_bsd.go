//go:build darwin || freebsd || dragonfly

package host

import "golang.org/x/sys/unix"

// NetworkFS returns the kind of dir's network file system; "": it is local.
func NetworkFS(dir string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", err
	}
	if st.Flags&unix.MNT_LOCAL == 0 {
		return "network", nil
	}
	return "", nil
}
