package storeurl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// PasswordFile is the parameter that names a file with the password.
const PasswordFile = "password-file"

// maxPassword is the size of a password file, in bytes. Longer files are files of another kind.
const maxPassword = 4096

// ErrPassword means that a password file cannot be used. Its text never has the content.
var ErrPassword = errors.New("password file")

// ReadPassword returns the only line of a file, without its end. The path must be absolute: a
// command in another folder would find another file. The error is ErrPassword.
//
// ReadPassword refuses a file that a user other than this one or root owns, that its group or
// others may write, or that others may read. It refuses everything but regular files, which
// symbolic links may lead to.
func ReadPassword(path string) (string, error) {
	bad := func(why string) (string, error) { return "", fmt.Errorf("%w %s: %s", ErrPassword, path, why) }
	if !filepath.IsAbs(path) {
		return bad("its path must be absolute")
	}
	f, err := OpenFile(path)
	if err != nil {
		return bad(reason(err))
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return bad(reason(err))
	case fi.IsDir():
		return bad("it is a folder")
	case !fi.Mode().IsRegular():
		return bad("it is not a regular file")
	}
	if err := private(fi); err != nil {
		return bad(err.Error())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	if err != nil {
		return bad(reason(err))
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case len(text) > maxPassword:
		return bad(fmt.Sprintf("it has more than %d bytes", maxPassword))
	case password == "":
		return bad("it is empty")
	case strings.HasPrefix(password, "\ufeff"):
		return bad("it begins with a byte order mark: save it as UTF-8 without one")
	case strings.ContainsAny(password, "\r\n"):
		return bad("it has more than one line")
	case strings.Contains(password, "\x00"):
		return bad("it has a zero byte")
	}
	remember(path, password)
	return password, nil
}

// OpenFile opens a file to read. It does not wait for the writer of a pipe.
func OpenFile(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|nonblocking, 0) }

// reason returns the text of an error of package os without the path.
func reason(err error) string {
	if e := (*os.PathError)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return err.Error()
}

// passwords are what ReadPassword has returned, for FilePasswords. A file that is changed has
// several, of which errors may show each.
var passwords struct {
	sync.Mutex
	list []filePassword
}

type filePassword struct{ path, password string }

// mostPasswords bounds the list of passwords.
const mostPasswords = 64

func remember(path, password string) {
	passwords.Lock()
	defer passwords.Unlock()
	p := filePassword{path, password}
	if slices.Contains(passwords.list, p) {
		return
	}
	passwords.list = append(passwords.list, p)
	if n := len(passwords.list); n > mostPasswords {
		passwords.list = slices.Clone(passwords.list[n-mostPasswords:])
	}
}

// FilePasswords returns the passwords that ReadPassword has returned in this process, so that texts
// can be searched for them. It may be called concurrently with ReadPassword.
func FilePasswords() []string {
	passwords.Lock()
	defer passwords.Unlock()
	var list []string
	for _, p := range passwords.list {
		list = append(list, p.password)
	}
	return list
}

// Private returns an error unless only this user and root can change the file, and others cannot
// read it. Its text names no file.
func Private(fi os.FileInfo) error { return private(fi) }

// Trusted returns an error unless only this user and root can change the file.
func Trusted(fi os.FileInfo) error { return trusted(fi) }
