package postgres

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/sqllock"
)

// NOTIFY needs no right, and roles that may read hf_lock, such as dashboards, know the waiters. So
// a notification has a seal: a hash of its channel, its text and a secret. The secret is in a table
// that only roles that take locks need to read. The server makes the seal, in the statement that
// notifies. Every listener receives the seal, so it must not be valid anywhere else.

// secret is the key of the seals.
type secret []byte

// sealed is an SQL expression: the text of the expression said, and its seal for a channel. The
// hash is truncated, so that nobody can derive the seal of a longer text from it.
func sealed(channel, said string) string {
	return said + " || ' ' || left(encode(sha256((SELECT secret FROM hf_secret WHERE one = 1) || convert_to(" + channel +
		" || ' ' || " + said + ", 'UTF8')), 'hex'), 32)"
}

// seal returns the seal that sealed adds to said.
func (s secret) seal(channel, said string) string {
	sum := sha256.Sum256(append(append(make([]byte, 0, 512), s...), channel+" "+said...))
	return hex.EncodeToString(sum[:16])
}

// secretRow is a statement that inserts the secret, unless there is one. The server makes the
// secret, so no log of statements has it. Before version 13 the server has no better source than
// random.
const secretRow = `DO $$ BEGIN
	INSERT INTO hf_secret AS s (one, secret) VALUES (1, sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')))
		ON CONFLICT (one) DO UPDATE SET secret = excluded.secret WHERE s.secret = '';
	EXCEPTION WHEN undefined_function THEN
	INSERT INTO hf_secret AS s (one, secret) SELECT 1, sha256(convert_to(string_agg(random()::text || clock_timestamp()::text, ''), 'UTF8')) FROM generate_series(1, 64)
		ON CONFLICT (one) DO UPDATE SET secret = excluded.secret WHERE s.secret = '';
END $$`

// payloadOf is a notification's text for a grant: "id token name", the name in hexadecimal digits.
func payloadOf(r sqllock.Ring) string { return fmt.Sprintf("%s %d %x", r.ID, r.Token, r.Name) }

// parse reads a notification and its seal. It ignores malformed text and wrong seals.
func (s secret) parse(channel, payload string) (r sqllock.Ring, ok bool) {
	at := strings.LastIndexByte(payload, ' ')
	if at < 0 || len(s) == 0 || !hmac.Equal([]byte(payload[at+1:]), []byte(s.seal(channel, payload[:at]))) {
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
