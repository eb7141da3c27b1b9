package open

import (
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/storeurl"
)

// refusal makes the error of an invalid URL of one kind of store. It quotes only its arguments.
type refusal func(format string, args ...any) error

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
