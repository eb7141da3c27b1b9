package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"syscall"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/redislock"
)

// hinted is an error of a store about which "holdfast doctor" may say more.
type hinted struct{ error }

func (h hinted) Unwrap() error { return h.error }

// advised marks an error of a store as hinted. That a grant is gone is nothing about the store.
func advised(err error) error {
	code, _ := codeOf(command{err})
	if err == nil || errors.Is(err, holdfast.ErrGone) || code != exitRefused && code != exitUnavailable {
		return err
	}
	return hinted{err}
}

// withAdvice returns the text of an error of a store with what to do about it.
func (a *app) withAdvice(err error) string {
	text := strings.ReplaceAll(oneLine(err.Error()), ": %!w(<nil>)", "") // of pgx, about another kind of server
	h := hinted{}
	if advice := a.advice(err); strings.HasSuffix(advice, silentOther) && errors.As(err, &h) {
		return text + "; " + advice + `, which "holdfast doctor" names`
	} else if advice != "" {
		return text + "; " + advice
	}
	if errors.As(err, &h) && !strings.Contains(text, "holdfast init") { // that says what to do
		return text + `; "holdfast doctor" may say more about the store`
	}
	return text
}

// advice says what to do about an error of a store, if that is known.
func (a *app) advice(err error) string {
	u, parseErr := url.Parse(a.url())
	if parseErr != nil {
		u = &url.URL{}
	}
	secure := strings.HasPrefix(u.Scheme, "rediss") || strings.HasPrefix(u.Scheme, "valkeys") ||
		u.Scheme == "zookeepers" || u.Scheme == "zks"
	plain := strings.HasPrefix(u.Scheme, "redis") || strings.HasPrefix(u.Scheme, "valkey")
	refusal := (*redislock.Refusal)(nil)
	known := errors.As(err, &refusal)
	mayLackPassword := errors.Is(err, holdfast.ErrRefused) &&
		(!known || refusal.Code == "NOAUTH" || refusal.Code == "WRONGPASS")
	switch {
	case errors.Is(err, holdfast.ErrDamaged) && strings.Contains(err.Error(), "it is no lock of Redisson"):
		return "the key may be another program's data: keep it, and give the lock another name (docs/redisson.md)"
	case errors.Is(err, holdfast.ErrDamaged):
		return "no request for this name works until its record is removed at the store; other names are not affected (docs/oncall.md)"
	case mayLackPassword && a.nestedWithoutPassword(err, u):
		return hintNested
	case known:
		return refusalAdvice(refusal.Code, refusal.Error(), refusal.Primary, u)
	case strings.HasSuffix(u.Scheme, "+quorum") && ofServer.MatchString(err.Error()):
		said := ofServer.FindStringSubmatch(err.Error())
		return refusalAdvice(said[1], said[0], "", u)
	case noSpace(err):
		return "free space there, and look with df -h; locks that are held stay held until their leases end"
	case errors.Is(err, holdfast.ErrRefused) && a.local() && strings.Contains(err.Error(), " belongs to "):
		return "run holdfast as that user, or name another store with --store"
	case errors.Is(err, holdfast.ErrRefused) && strings.Contains(err.Error(), "; its primary is "):
		return "use that server"
	case late(err) && secure:
		return "a server that does not speak TLS at this port never answers: the same URL without TLS begins with " +
			withoutTLS.Replace(u.Scheme) + "://"
	case errors.Is(err, io.EOF) && plain && !secure:
		return "it may speak TLS only: such a URL begins with " + withTLS.Replace(u.Scheme) + ":// (or it is no Redis)"
	case strings.Contains(err.Error(), "unknown message type") && plain:
		return "what answers there is no Redis"
	case strings.Contains(err.Error(), "received unexpected message") && strings.HasPrefix(u.Scheme, "postgres"):
		return "what answers there is no PostgreSQL"
	case noTLS.MatchString(err.Error()) && asksForTLS.MatchString(u.RawQuery):
		return "the URL asks for TLS (tls, sslmode): leave that out, or turn TLS on at the server"
	case late(err) && isOutage(err):
		return silentServers(a.url())
	}
	return ""
}

var (
	noTLS      = regexp.MustCompile("server (does not support|refused) TLS")
	asksForTLS = regexp.MustCompile("tls=|sslmode=(require|verify)")
)

// local reports whether the store is a file.
func (a *app) local() bool {
	scheme, _, _ := strings.Cut(a.url(), ":")
	return a.url() == "" || strings.EqualFold(scheme, "sqlite")
}

// noSpace reports whether a disk is full; drivers have different errors for it.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "the file system has no space")
}

var (
	withTLS    = strings.NewReplacer("redis", "rediss", "valkey", "valkeys")
	withoutTLS = strings.NewReplacer("rediss", "redis", "valkeys", "valkey", "zookeepers", "zookeeper", "zks", "zk")
)

// ofServer finds the refusal of one server of a quorum, whose error is not that of its servers.
var ofServer = regexp.MustCompile(`\((NOAUTH|NOPERM|MISCONF|OOM)\b[^)]*`)

// refusalAdvice says what to do about a refusal of Redis, from the code of the reply, what was said,
// and the primary of a replica.
func refusalAdvice(code, said, primary string, u *url.URL) string {
	switch code {
	case "NOAUTH":
		return "the URL has a place for it: redis://[USER]:PASSWORD@HOST; " + envPasswordFile + " names a file with it"
	case "NOPERM":
		if missing := missingRight(said, u); missing != "" {
			user := u.User.Username()
			if user == "" {
				user = "default"
			}
			return fmt.Sprintf("an administrator grants it: ACL SETUSER %s %s (docs/redis.md has all that holdfast needs)",
				user, missing)
		}
	case "READONLY":
		if primary != "" {
			return "use that server"
		}
	case "MISCONF":
		return "the server's log says why; mostly its disk is full"
	case "OOM":
		return "raise maxmemory, or remove keys of other programs"
	}
	if strings.Contains(said, "executing the script can't") { // Redis 7.0 does not name the command
		return "ACL LOG at the server shows which (docs/redis.md has all that holdfast needs)"
	}
	return ""
}

var ofCommand = regexp.MustCompile(`run the '([^']+)' command`)

// missingRight returns the rule of an ACL that a refusal asks for.
func missingRight(said string, u *url.URL) string {
	keys := "hf:*"
	if strings.HasSuffix(u.Scheme, "+quorum") {
		keys = "hfq:*"
	}
	switch command := ofCommand.FindStringSubmatch(said); {
	case command != nil:
		return "+" + command[1]
	case strings.Contains(said, "the channels"):
		return "'&" + keys + "'"
	case strings.Contains(said, "the keys"):
		return "'~" + keys + "'"
	}
	return ""
}
