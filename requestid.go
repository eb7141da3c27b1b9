package holdfast

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"sync/atomic"

	"github.com/holdfast-lock/holdfast/driver"
)

// A request's ID is the hash of a secret that only its client knows. Stores show IDs to operators
// and to anyone who may read their data. Nobody can guess the next ID from earlier ones, which a
// forged push would need. Nobody can make a ticket from an ID, because a ticket contains the
// secret.

// requestSecret is the secret from which a request's ID is made.
type requestSecret [16]byte

// requestIDs makes and numbers the secrets of a client's requests.
type requestIDs struct {
	key   [32]byte
	count atomic.Uint64
}

func newRequestIDs() *requestIDs {
	r := &requestIDs{}
	_, _ = rand.Read(r.key[:]) // it never fails
	return r
}

// next returns the number and the ID of a new request.
func (r *requestIDs) next() (number uint64, id string) {
	number = r.count.Add(1)
	return number, r.secret(number).id()
}

// secret returns the secret of a request. It reveals neither other secrets nor the key.
func (r *requestIDs) secret(number uint64) requestSecret {
	var b [40]byte
	copy(b[:], r.key[:])
	binary.BigEndian.PutUint64(b[32:], number)
	sum := sha256.Sum256(b[:])
	return requestSecret(sum[:16])
}

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// id returns the ID of the request that has this secret.
func (s requestSecret) id() string {
	sum := sha256.Sum256(s[:])
	var b [32]byte
	idEncoding.Encode(b[:], sum[:20])
	return string(b[:])
}

// newRequest gives l a new request of session s. A request never outlives its session.
func (l *Lease) newRequest(s *session) {
	l.c.mu.Lock()
	l.c.noticeSleep() // the time of its exchanges, and of the store's silence, counts from now
	l.c.mu.Unlock()
	l.session, l.unanswered = s, false
	l.number, l.req.ID = l.c.requests.next()
	l.askForBlock()
	if l.req.Lease = 0; l.maxHold > 0 && l.c.backend.Kinds().Leases {
		l.req.Lease = s.leaseFor(l.maxHold - l.maxHold/100)
	}
}

// sendRequest is one exchange about l's request.
func (l *Lease) sendRequest(ctx context.Context) (driver.Reply, error) {
	ctx, cancel := l.c.bound(ctx)
	defer cancel()
	return l.session.Acquire(ctx, &l.req)
}
