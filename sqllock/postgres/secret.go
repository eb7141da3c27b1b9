package postgres

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

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

// add adds the seal for a channel to said.
func (s secret) add(channel, said string) string { return said + " " + s.seal(channel, said) }

// remove returns a text without its seal. False: the seal is wrong, or there is none.
func (s secret) remove(channel, text string) (said string, ok bool) {
	at := strings.LastIndexByte(text, ' ')
	if at < 0 || len(s) == 0 || !hmac.Equal([]byte(text[at+1:]), []byte(s.seal(channel, text[:at]))) {
		return "", false
	}
	return text[:at], true
}

// parse reads a notification and its seal. It ignores malformed text and wrong seals.
func (s secret) parse(channel, payload string) (r sqllock.Ring, ok bool) {
	said, ok := s.remove(channel, payload)
	if !ok {
		return r, false
	}
	return sqllock.ParseRing(said)
}

var _ sqllock.Sealer = (*listener)(nil)

// Seal implements [sqllock.Sealer]: messages between processes have the seal of notifications.
func (l *listener) Seal(server, text string) (string, bool) {
	s := l.secret.Load()
	if s == nil || len(*s) == 0 {
		return "", false
	}
	return s.add(channel(server), text), true
}

// Unseal implements [sqllock.Sealer].
func (l *listener) Unseal(text string) (said string, ok bool) {
	if s := l.secret.Load(); s != nil {
		said, ok = s.remove(channel(l.cfg.Server), text)
	}
	if !ok {
		l.doubt.Store(true)
	}
	return said, ok
}

var errNewSecret = errors.New("hf_secret has another secret")

// alive checks the connection, and whether s is still the secret. A process that only releases gets
// no notification that would show it.
func (l *listener) alive(p *pgx.Conn, s secret) error {
	ctx, cancel := context.WithTimeout(l.ctx, checkEvery)
	defer cancel()
	answer, err := simple(ctx, p, "SELECT encode(secret, 'hex') FROM hf_secret WHERE one = 1")
	switch {
	case p.IsClosed() || ctx.Err() != nil:
		return cmp.Or(err, ctx.Err())
	case err == nil && answer[0] != "" && answer[0] != hex.EncodeToString(s):
		return errNewSecret // reconnecting reads it
	}
	return nil // it answers; without a secret, the last one stays
}
