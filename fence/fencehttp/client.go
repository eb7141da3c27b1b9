package fencehttp

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast"
)

// Header is the header that carries the token unless another is chosen. Its value is the token in
// decimal digits.
const Header = "Fencing-Token"

// ErrNoToken is the error of a request whose context carries no lease.
var ErrNoToken = errors.New("the request's context carries no fencing token")

// Transport is an http.RoundTripper that sends the fencing token of the request's context: the
// context of Do, or one of Lease.Context. It replaces a token that the request has already. The zero
// Transport works. It is safe for concurrent use.
type Transport struct {
	Base   http.RoundTripper // nil: http.DefaultTransport
	Header string            // "": Header

	// Token returns the token of a context, and 0 if there is none. Nil: holdfast.Token. For a
	// context with several leases it is one that calls holdfast.TokenOf.
	Token func(context.Context) uint64
}

// RoundTrip implements http.RoundTripper. It sends nothing, and returns ErrNoToken, if the context
// carries no token.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, base := t.Token, t.Base
	if token == nil {
		token = holdfast.Token
	}
	if base == nil {
		base = http.DefaultTransport
	}
	n := token(r.Context())
	if n == 0 {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, ErrNoToken
	}
	sent, header := r.Clone(r.Context()), named(t.Header) // a RoundTripper must not change its request
	maps.DeleteFunc(sent.Header, func(key string, _ []string) bool { return strings.EqualFold(key, header) })
	sent.Header.Set(header, strconv.FormatUint(n, 10))
	return base.RoundTrip(sent)
}

func named(header string) string {
	if header == "" {
		return Header
	}
	return header
}
