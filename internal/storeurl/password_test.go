//go:build unix

package storeurl

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A password is the only line of a file, whatever ends the line.
func TestReadPassword(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"s3cret": "s3cret", "s3cret\n": "s3cret", "s3cret\r\n": "s3cret", " with spaces \n": " with spaces ",
		"\xff\n":                         "\xff",
		strings.Repeat("x", maxPassword): strings.Repeat("x", maxPassword),
	} {
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadPassword(path)
		if err != nil || got != want {
			t.Errorf("%.20q: %.20q, %v", text, got, err)
		}
		if !slices.Contains(FilePasswords(), want) {
			t.Errorf("%.20q is not masked", want)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("file", link); err != nil { // as in a mounted secret of Kubernetes
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o400, 0o440, 0o600, 0o640} {
		if err := os.Chmod(filepath.Join(dir, "file"), mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadPassword(link); err != nil {
			t.Error(err)
		}
	}
}

// A file that is no password, or that others could read or exchange, is refused with the reason and
// without its content.
func TestReadPasswordRefuses(t *testing.T) {
	dir := t.TempDir()
	const secret = "s3cret"
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{
		write("empty", "", 0o600):                                 "it is empty",
		write("line", "\n", 0o600):                                "it is empty",
		write("crlf", "\r\n", 0o600):                              "it is empty",
		write("two", secret+"\nmore\n", 0o600):                    "it has more than one line",
		write("cr", secret+"\rmore\n", 0o600):                     "it has more than one line",
		write("blank", secret+"\n\n", 0o600):                      "it has more than one line",
		write("zero", secret+"\x00\n", 0o600):                     "it has a zero byte",
		write("mark", "\ufeff"+secret, 0o600):                     "it begins with a byte order mark",
		write("long", strings.Repeat(secret, maxPassword), 0o600): "it has more than 4096 bytes",
		write("all", secret, 0o644):                               "every user may read it (mode 0644); allowed are modes such as 0600",
		write("group", secret, 0o660):                             "other users may write it (mode 0660)",
		write("others", secret, 0o602):                            "other users may write it (mode 0602)",
		dir:                                                       "it is a folder",
		pipe:                                                      "it is not a regular file",
		"/dev/null":                                               "it is not a regular file",
		filepath.Join(dir, "missing"):                             "no such file or directory",
		filepath.Join(write("file", secret, 0o600), "below a file"): "not a directory",
		"relative": "its path must be absolute",
		"":         "its path must be absolute",
	}
	if os.Geteuid() == 0 {
		foreign := write("foreign", secret, 0o600)
		if err := os.Chown(foreign, 12345, -1); err != nil {
			t.Fatal(err)
		}
		cases[foreign] = "it belongs to user 12345; allowed are this user, 0, and root"
	}
	for path, want := range cases {
		got, err := ReadPassword(path)
		if !errors.Is(err, ErrPassword) || got != "" || !strings.Contains(err.Error(), path+": "+want) ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
}
