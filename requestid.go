package holdfast

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"sync/atomic"
)

// A request's ID is the hash of a secret that its client alone knows. Stores show IDs to operators
// and to whoever may read them. From IDs nobody can foretell the next one, as a forged wake-up
// would have to, nor make a ticket for the grant, which has the secret.

// requestSecret is what a request's ID is made of.
type requestSecret [16]byte

// requestIDs makes the secrets of a client's requests, and numbers them.
type requestIDs struct {
	key   [32]byte
	count atomic.Uint64
}

func newRequestIDs() *requestIDs {
	r := &requestIDs{}
	_, _ = rand.Read(r.key[:]) // it never fails
	return r
}

// next is the number and the ID of a new request.
func (r *requestIDs) next() (number uint64, id string) {
	number = r.count.Add(1)
	return number, r.secret(number).id()
}

// secret is that of request number. One secret tells nothing of another, nor of the key.
func (r *requestIDs) secret(number uint64) requestSecret {
	var b [40]byte
	copy(b[:], r.key[:])
	binary.BigEndian.PutUint64(b[32:], number)
	sum := sha256.Sum256(b[:])
	return requestSecret(sum[:16])
}

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// id is the ID of the request that has this secret.
func (s requestSecret) id() string {
	sum := sha256.Sum256(s[:])
	var b [32]byte
	idEncoding.Encode(b[:], sum[:20])
	return string(b[:])
}
