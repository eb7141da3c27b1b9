package open

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/storeurl"
)

// refusal makes the error of an invalid URL of one kind of store. It quotes only its arguments.
type refusal func(format string, args ...any) error

// onlyKnown refuses a parameter that is not one of known, is empty, or is given twice.
func onlyKnown(query url.Values, invalid refusal, known ...string) error {
	for k, v := range query {
		switch {
		case !slices.Contains(known, k):
			return invalid("the parameter %q is unknown%s", k, storeurl.Meant(k, known))
		case len(v) != 1 || v[0] == "":
			return invalid("the parameter %s is empty or given twice", k)
		}
	}
	return nil
}

// serverURL parses the URL of a store with servers.
func serverURL(rawURL string, invalid refusal, schemes ...string) (*url.URL, url.Values, error) {
	if scheme, _, ok := strings.Cut(rawURL, "://"); !ok || !slices.Contains(schemes, strings.ToLower(scheme)) {
		return nil, nil, invalid("it has no // after the scheme")
	}
	if err := storeurl.AtAfterHosts(rawURL); err != nil {
		return nil, nil, invalid("%v", err)
	}
	u, query, err := storeurl.Parse(rawURL)
	if err != nil {
		return nil, nil, invalid("%v", err)
	}
	return u, query, nil
}

// passwordFile is the password of a URL in a file. Its zero value means that there is none.
type passwordFile struct{ path string }

// passwordFileOf returns the file that a URL names, once it has been read. password is that of the
// URL itself.
func passwordFileOf(query url.Values, password string, invalid refusal) (f passwordFile, now string, err error) {
	if !query.Has(storeurl.PasswordFile) {
		return f, password, nil
	}
	if password != "" {
		return f, "", invalid("it has a password and a password-file: only one of them is allowed")
	}
	f.path = query.Get(storeurl.PasswordFile)
	if now, err = storeurl.ReadPassword(f.path); err != nil {
		return f, "", invalid("%v", err)
	}
	return f, now, nil
}

// read reads the file again for a new connection, and sets *password. Without a file it does nothing.
func (f passwordFile) read(password *string) error {
	if f.path == "" {
		return nil
	}
	text, err := storeurl.ReadPassword(f.path)
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err) // nothing was sent
	}
	*password = text
	return nil
}

// WithPasswordFile returns rawURL with the parameter password-file, if the store that it names has
// passwords and rawURL has neither a password nor a file of one. Otherwise, also for a URL that
// cannot be parsed, it returns rawURL as it is, and false.
func WithPasswordFile(rawURL, path string) (string, bool) {
	kind, _, ok := strings.Cut(strings.ToLower(asRedis(rawURL)), "://")
	if !ok || !slices.Contains(withPassword, kind) {
		return rawURL, false
	}
	u, query, err := storeurl.Parse(rawURL)
	if err != nil || query.Has(storeurl.PasswordFile) {
		return rawURL, false
	}
	_, given := u.User.Password()
	given = given || query.Has("password") || query.Has("passfile") // PostgreSQL
	named := u.User != nil && u.User.Username() != ""
	if given || !named && strings.HasPrefix(kind, "z") { // ZooKeeper has no user by default
		return rawURL, false
	}
	separator := "?"
	if strings.Contains(rawURL, "?") {
		separator = "&"
	}
	return rawURL + separator + storeurl.PasswordFile + "=" + url.QueryEscape(path), true
}

// withPassword are the schemes of stores that have passwords.
var withPassword = append([]string{
	"redis+quorum", "rediss+quorum", "zookeeper", "zk", "zookeepers", "zks", "mysql", "mariadb", "postgres", "postgresql",
}, redisSchemes...)
