package open

import (
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/storeurl"
)

// refusal makes the error of an invalid URL of one kind of store. It quotes only its arguments.
type refusal func(format string, args ...any) error

// onlyKnown refuses a parameter that is not one of known, is empty, or is given twice.
func onlyKnown(query url.Values, invalid refusal, known ...string) error {
	for k, v := range query {
		switch {
		case !slices.Contains(known, k):
			return invalid("the parameter %q is unknown", k)
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
