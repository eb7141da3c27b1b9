package web

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"unicode"
)

// MinSecret is how long a secret must be. Nothing slows guesses down, so they must be hopeless.
const MinSecret = 16

// Users are who may use a server.
type Users struct {
	names   []string
	secrets [][sha256.Size]byte
}

// OneUser returns a single user with this secret. It does not matter by which name a browser calls
// the user.
func OneUser(secret string) (*Users, error) {
	u := &Users{}
	return u, u.add("", secret)
}

// ReadUsers reads a file with a line NAME:SECRET for each user. Lines that are empty or begin with #
// are left out. Nobody but its owner may read it.
func ReadUsers(path string) (*Users, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		return nil, fmt.Errorf("%s: other users may read it (mode %04o); chmod 600", path, mode)
	}
	u := &Users{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, secret, ok := strings.Cut(line, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("%s, line %d: expected NAME:SECRET", path, n)
		}
		if err := u.add(name, secret); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(u.names) == 0 {
		return nil, fmt.Errorf("%s has no user", path)
	}
	return u, nil
}

func (u *Users) add(name, secret string) error {
	for _, known := range u.names {
		if known == name {
			return fmt.Errorf("the user %q is there twice", name)
		}
	}
	sum := sha256.Sum256([]byte(secret))
	switch {
	case slices.Contains(u.secrets, sum): // of whom is a bearer token?
		return fmt.Errorf("the user %q has the secret of another user", name)
	case strings.ContainsFunc(name+secret, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return fmt.Errorf("a name or secret has a character that cannot be seen")
	case len(secret) < MinSecret:
		return fmt.Errorf("the secret has %d characters; at least %d are needed, such as those of: openssl rand -hex 16",
			len(secret), MinSecret)
	}
	u.names = append(u.names, name)
	u.secrets = append(u.secrets, sum)
	return nil
}

// check returns the user who sent a request. It takes as long whatever part of a secret is right,
// and whoever the user is.
func (u *Users) check(r *http.Request) (name string, ok bool) {
	user, secret, basic := r.BasicAuth()
	if !basic {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return "", false
		}
		secret = strings.TrimSpace(token)
	}
	sum := sha256.Sum256([]byte(secret))
	found := -1
	for i, want := range u.secrets {
		same := subtle.ConstantTimeCompare(sum[:], want[:])
		if basic && u.names[i] != "" {
			same &= subtle.ConstantTimeCompare([]byte(user), []byte(u.names[i]))
		}
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return "", false
	}
	if u.names[found] == "" {
		return "the owner of the token", true
	}
	return u.names[found], true
}
