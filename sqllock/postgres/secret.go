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

// NOTIFY needs no right, and whoever may read hf_lock, as a dashboard may, knows who waits. So a
// notification has a seal: a hash of where it is told, of what it says, and of a secret, which is in a table of
// its own that only those need to read who take locks. The server makes the seal, in the statement that
// notifies. Everybody hears it, so it must be of no use anywhere else.

// secret is what a seal is made with.
type secret []byte

// sealed is an SQL expression: the text that the expression said yields, and its seal for a channel. The hash is
// cut, so that nobody can make from one seal that of a longer text.
func sealed(channel, said string) string {
	return said + " || ' ' || left(encode(sha256((SELECT secret FROM hf_secret WHERE one = 1) || convert_to(" + channel + " || ' ' || " + said + ", 'UTF8')), 'hex'), 32)"
}

// seal is what sealed adds to said.
func (s secret) seal(channel, said string) string {
	sum := sha256.Sum256(append(append(make([]byte, 0, 512), s...), channel+" "+said...))
	return hex.EncodeToString(sum[:16])
}

// secretRow is a statement that puts in the secret, unless there is one. The server makes it, so that no log of
// statements shows it. Before version 13 it has no better source than random.
const secretRow = `DO $$ BEGIN
	INSERT INTO hf_secret AS s (one, secret) VALUES (1, sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')))
		ON CONFLICT (one) DO UPDATE SET secret = excluded.secret WHERE s.secret = '';
	EXCEPTION WHEN undefined_function THEN
	INSERT INTO hf_secret AS s (one, secret) SELECT 1, sha256(convert_to(string_agg(random()::text || clock_timestamp()::text, ''), 'UTF8')) FROM generate_series(1, 64)
		ON CONFLICT (one) DO UPDATE SET secret = excluded.secret WHERE s.secret = '';
END $$`

// told is what is said of a grant: "id token name", the name in hexadecimal digits.
func told(r sqllock.Ring) string { return fmt.Sprintf("%s %d %x", r.ID, r.Token, r.Name) }

// parse reads what was told and its seal. What makes no sense, or has another seal, is not heard.
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
