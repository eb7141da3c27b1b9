package postgres

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// NOTIFY needs no right, and whoever may read hf_lock, as a dashboard may, knows who waits. So a
// notification has a seal: a hash of what it says and of a secret, which is in a table of its own that only
// those need to read who take locks. The server makes the seal, in the statement that notifies.

// secret is what a seal is made with.
type secret []byte

func newSecret() secret {
	s := make(secret, 32)
	_, _ = rand.Read(s) // it never fails
	return s
}

// sealed is an SQL expression: the text that the expression said yields, and its seal. The hash is cut,
// so that nobody can make from one seal that of a longer text.
func sealed(said string) string {
	return said + " || ' ' || left(encode(sha256((SELECT secret FROM hf_secret WHERE one = 1) || convert_to(" + said + ", 'UTF8')), 'hex'), 32)"
}

// seal is what sealed adds to said.
func (s secret) seal(said string) string {
	sum := sha256.Sum256(append(append(make([]byte, 0, 512), s...), said...))
	return hex.EncodeToString(sum[:16])
}

// told is what is said of a grant: "id token name", the name in hexadecimal digits.
func told(r sqllock.Ring) string { return fmt.Sprintf("%s %d %x", r.ID, r.Token, r.Name) }

// parse reads what was told and its seal. What makes no sense, or has another seal, is not heard.
func (s secret) parse(payload string) (r sqllock.Ring, ok bool) {
	at := strings.LastIndexByte(payload, ' ')
	if at < 0 || len(s) == 0 || !hmac.Equal([]byte(payload[at+1:]), []byte(s.seal(payload[:at]))) {
		return r, false
	}
	f := strings.Split(payload[:at], " ")
	if len(f) != 3 || f[0] == "" {
		return r, false
	}
	token, err := strconv.ParseUint(f[1], 10, 63)
	name, wrong := hex.DecodeString(f[2])
	return sqllock.Ring{ID: f[0], Token: token, Name: string(name)}, err == nil && wrong == nil
}
