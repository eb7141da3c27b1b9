package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"

	"github.com/holdfast-lock/holdfast/redislock"
)

// hinted is an error of a store about which "holdfast doctor" may say more.
type hinted struct{ error }

func (h hinted) Unwrap() error { return h.error }

// advised marks an error of a store as hinted.
func advised(err error) error {
	if code, _ := codeOf(command{err}); err == nil || code != exitRefused && code != exitUnavailable {
		return err
	}
	return hinted{err}
}

// withAdvice returns the text of an error of a store with what to do about it.
func (a *app) withAdvice(err error) string {
	text := oneLine(err.Error())
	if advice := a.advice(err); advice != "" {
		return text + "; " + advice
	}
	if h := (hinted{}); errors.As(err, &h) {
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
	switch {
	case a.nestedWithoutPassword(err, u):
		return hintNested
	case errors.As(err, &refusal):
		return refusalAdvice(refusal, u)
	case late(err) && secure:
		return "a server that does not speak TLS at this port never answers: the same URL without TLS begins with " +
			withoutTLS.Replace(u.Scheme) + "://"
	case errors.Is(err, io.EOF) && plain && !secure:
		return "it may speak TLS only: such a URL begins with " + withTLS.Replace(u.Scheme) + "://"
	}
	return ""
}

var (
	withTLS    = strings.NewReplacer("redis", "rediss", "valkey", "valkeys")
	withoutTLS = strings.NewReplacer("rediss", "redis", "valkeys", "valkey", "zookeepers", "zookeeper", "zks", "zk")
)

// refusalAdvice says what to do about a refusal of Redis.
func refusalAdvice(r *redislock.Refusal, u *url.URL) string {
	switch r.Code {
	case "NOAUTH":
		return "the URL has a place for it: redis://[USER]:PASSWORD@HOST; " + envPasswordFile + " names a file with it"
	case "NOPERM":
		if missing := missingRight(r.Error(), u); missing != "" {
			user := u.User.Username()
			if user == "" {
				user = "default"
			}
			return fmt.Sprintf("an administrator grants it: ACL SETUSER %s %s (docs/redis.md has all that holdfast needs)",
				user, missing)
		}
	case "READONLY":
		if r.Primary != "" {
			return "use that server"
		}
	case "MISCONF":
		return "the server's log says why; mostly its disk is full"
	case "OOM":
		return "raise maxmemory, or remove keys of other programs"
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
