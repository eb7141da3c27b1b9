package fencehttp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/fence"
)

// A Store remembers the largest token of each resource. Its method may be called concurrently.
type Store interface {
	// Raise raises the token of resource to token, durably, before it returns nil. An equal token is
	// allowed. Errors: fence.ErrStale if it has seen a larger one; fence.ErrRetry if the same call
	// may succeed; any other, also ctx's, if it does not know. A guard asks only for resources that
	// fence.Begin allows.
	Raise(ctx context.Context, resource string, token uint64) error
}

// Guard refuses requests under a stale token before they reach a handler; the package's
// documentation says what that protects. The answers are:
//
//   - 400: the header is missing, is there twice, or is no token; or Resource fails, or returns a name
//     that fence.Begin does not allow.
//   - 412 (Precondition Failed): the token is stale. The token in the header is a condition of the
//     request that does not hold. 409 would invite the client to solve the conflict and send the
//     request again, which cannot succeed under this token.
//   - 503: another request was in the way, and the same request may succeed later.
//   - 500: the store failed. The handler has not run.
type Guard struct {
	Store Store

	// Resource names what the request works on: one name for one lock.
	Resource func(*http.Request) (string, error)

	Header string // "": Header
}

// Handler returns next behind the guard.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource, token, err := read(r, g.Header, g.Resource)
		if err == nil {
			err = g.Store.Raise(r.Context(), resource, token)
		}
		if err != nil {
			refuse(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// errMalformed marks what is wrong with a request.
var errMalformed = errors.New("bad request")

// read returns the resource and the token of a request.
func read(r *http.Request, header string, resource func(*http.Request) (string, error)) (string, uint64, error) {
	header = named(header)
	values := r.Header.Values(header)
	if len(values) != 1 {
		return "", 0, fmt.Errorf("%w: %d headers %s; it must be there once", errMalformed, len(values), header)
	}
	token, err := strconv.ParseUint(values[0], 10, 64)
	if err != nil || token == 0 || token > math.MaxInt64 || strconv.FormatUint(token, 10) != values[0] {
		return "", 0, fmt.Errorf("%w: %s %.40q: it must be a number from 1 to %d", errMalformed, header, values[0],
			int64(math.MaxInt64))
	}
	name, err := resource(r)
	if err == nil {
		err = driver.CheckName(name)
	}
	if err != nil {
		return "", 0, fmt.Errorf("%w: resource: %w", errMalformed, err)
	}
	return name, token, nil
}

// refuse answers a request that was refused with err. The text of a store's failure is not for
// clients.
func refuse(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errMalformed):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, fence.ErrStale):
		http.Error(w, "stale fencing token: a newer holder of the lock has been here", http.StatusPreconditionFailed)
	case errors.Is(err, fence.ErrRetry):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "another request was in the way", http.StatusServiceUnavailable)
	default:
		http.Error(w, "the fencing token could not be checked", http.StatusInternalServerError)
	}
}
