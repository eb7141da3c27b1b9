package open

import (
	"net/url"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/internal/storeurl"
)

// Redact returns err with a text that contains neither the password of the URL nor any password of
// another URL. errors.Is and errors.As still find the errors that err wraps.
func Redact(err error, rawURL string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	clean := Scrub(text, rawURL)
	if clean == text {
		return err
	}
	return &redacted{clean, err}
}

type redacted struct {
	text string
	err  error
}

func (e *redacted) Error() string { return e.text }
func (e *redacted) Unwrap() error { return e.err }

// inURL finds the text between the // and the last @ of a URL. The templates in error texts have a
// bracket there.
var inURL = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(://)[^\s"'\[][^\s"']*@`) })

// inQuery finds the parameters of a URL.
var inQuery = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`([?&])([\w.-]+)=[^\s"'&]+`) })

// inCommand finds the arguments that Redis quotes of a command that it does not know, such as HELLO
// with a password. They end the answer.
var inCommand = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(with args beginning with:).*`) })

// Scrub masks passwords in text: anything in the place of a password in a URL or in a refused
// command of Redis, and the passwords of rawURL, and of files that this process has read, that no
// text has by chance.
//
// A common password is not masked elsewhere: texts have its word whatever the password is, and the
// mask in a known sentence would show which word the password is.
func Scrub(text, rawURL string) string {
	list := append(secrets(rawURL), storeurl.FilePasswords()...)
	// The URL itself, also with a password that ends where that of a URL in a text would.
	if scheme, rest, ok := strings.Cut(rawURL, "://"); ok && strings.Contains(rest, "@") {
		text = strings.ReplaceAll(text, rawURL, scheme+"://"+storeurl.Mask+rest[strings.LastIndexByte(rest, '@'):])
	}
	text = inURL().ReplaceAllString(text, "$1"+storeurl.Mask+"@")
	text = inQuery().ReplaceAllStringFunc(text, func(p string) string {
		key, _, _ := strings.Cut(p[1:], "=")
		if !secret(key) && key != listenParameter {
			return p
		}
		return p[:1] + key + "=" + storeurl.Mask
	})
	text = inCommand().ReplaceAllString(text, "$1 "+storeurl.Mask)
	shown := public(rawURL)
	for _, s := range list {
		if rare(s) && !strings.Contains(shown, s) {
			text = strings.ReplaceAll(text, s, storeurl.Mask)
		}
	}
	return text
}

// public returns what texts may show of a URL, encoded and decoded. It is empty for a URL that
// cannot be parsed; no text shows such a URL.
func public(rawURL string) string {
	clean, ok := WithoutPassword(rawURL)
	if !ok {
		return ""
	}
	plain, err := url.PathUnescape(clean)
	if err != nil {
		return clean
	}
	return clean + "\n" + plain
}

// rare reports whether a password is unlikely to be in a text that does not quote it. Words,
// numbers, times and addresses are not rare unless they are long.
func rare(password string) bool {
	const atLeast, long = 8, 20
	n := utf8.RuneCountInString(password)
	letters := strings.ContainsFunc(password, unicode.IsLetter)
	others := strings.ContainsFunc(password, unicode.IsDigit) || strings.ContainsAny(password, "!#$%&*+?@^~|")
	return n >= long || n >= atLeast && letters && others
}

// secrets returns the forms in which the passwords of the URL may appear, the longest form of each
// first. It also works for a URL that cannot be parsed.
func secrets(rawURL string) []string {
	var list []string
	add := func(s string) {
		if plain, err := url.PathUnescape(s); err == nil && plain != s && plain != "" {
			list = append(list, plain)
		}
		if s != "" {
			list = append(list, s)
		}
	}
	_, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return nil
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if _, password, ok := strings.Cut(rest[:at], ":"); ok {
			add(password)
		}
	}
	_, query, _ := strings.Cut(rest, "?")
	for _, p := range pairs(query) {
		switch {
		case secret(p.key):
			add(p.value)
			add(url.QueryEscape(p.value))
		case p.key == listenParameter:
			for _, s := range secrets(p.value) {
				add(s)
				add(url.QueryEscape(s))
			}
		}
	}
	return list
}

// pair is KEY=VALUE of a query, as written and decoded.
type pair struct{ raw, key, value string }

// pairs splits a query. Text that cannot be decoded stays as it is.
func pairs(rawQuery string) []pair {
	var list []pair
	for raw := range strings.SplitSeq(rawQuery, "&") {
		if raw == "" {
			continue
		}
		p := pair{raw: raw}
		p.key, p.value, _ = strings.Cut(raw, "=")
		if key, err := url.PathUnescape(p.key); err == nil {
			p.key = key
		}
		if value, err := url.PathUnescape(p.value); err == nil {
			p.value = value
		}
		list = append(list, p)
	}
	return list
}

func joinPairs(list []pair) string {
	var b strings.Builder
	for i, p := range list {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(p.raw)
	}
	return b.String()
}

// secret reports whether the parameter key has a password.
func secret(key string) bool {
	key = strings.ToLower(key)
	switch key {
	case storeurl.PasswordFile, "sentinel" + storeurl.PasswordFile:
		return false
	case "passfile", "require_auth": // PostgreSQL: a file of passwords, and methods
		return false
	}
	for _, s := range []string{"pass", "pwd", "secret", "token", "auth", "credential"} {
		if strings.Contains(key, s) {
			return true
		}
	}
	return false
}

// WithoutPassword returns rawURL without its passwords, for programs that may know where the store
// is, but may not use it. ok is false if the URL cannot be parsed; then do not pass it on.
func WithoutPassword(rawURL string) (clean string, ok bool) {
	if len(secrets(rawURL)) == 0 && !strings.Contains(rawURL, "@") {
		return rawURL, true
	}
	clean, ok = withoutPassword(rawURL)
	if len(secrets(clean)) > 0 { // package url sees no user where secrets does
		return "", false
	}
	return clean, ok
}

// withoutPassword is WithoutPassword for a URL that may have a password.
func withoutPassword(rawURL string) (clean string, ok bool) {
	u, err := parseURL(rawURL)
	if err != nil || u.Host == "" && u.Path == "" {
		return "", false
	}
	if u.User != nil {
		if name := u.User.Username(); name != "" {
			u.User = url.User(name)
		} else {
			u.User = nil
		}
	}
	var kept []pair
	for _, p := range pairs(u.RawQuery) {
		switch {
		case secret(p.key):
		case p.key == listenParameter:
			direct, ok := WithoutPassword(p.value)
			if !ok {
				return "", false
			}
			kept = append(kept, pair{raw: p.key + "=" + url.QueryEscape(direct)})
		default:
			kept = append(kept, p)
		}
	}
	u.RawQuery = joinPairs(kept)
	if hosts := u.Host; strings.Contains(hosts, ",") { // as written; String would encode it
		before := u.Scheme + "://"
		if u.User != nil {
			before += u.User.String() + "@"
		}
		u.Host = ","
		return before + hosts + strings.TrimPrefix(u.String(), before+","), true
	}
	return u.String(), true
}

// parseURL is url.Parse, and also accepts a list of hosts, each with its port.
func parseURL(rawURL string) (*url.URL, error) {
	if _, hosts, _ := storeurl.CutHosts(rawURL); strings.Contains(hosts, ",") {
		return storeurl.ParseHosts(rawURL)
	}
	return url.Parse(rawURL)
}
