package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/redislock"
)

// An error of a store says what to do about it, where that is known.
func TestAdvice(t *testing.T) {
	refused := func(text string) error { return redislock.ServerError(text, errors.New(text), false) }
	silent := fmt.Errorf("%w: no answer: %w", holdfast.ErrUnavailable, context.DeadlineExceeded)
	closed := fmt.Errorf("%w: hello: %w", holdfast.ErrUnavailable, io.EOF)
	for _, c := range []struct {
		url  string
		err  error
		want string
	}{
		{"redis://h", refused("NOAUTH HELLO must be called with …"), "wants a password (NOAUTH); the URL has a place for it: redis://[USER]:PASSWORD@HOST"},
		{"redis://u:p@h", refused("NOPERM this user has no permissions to run the 'subscribe' command"),
			"ACL SETUSER u +subscribe (docs/redis.md has"},
		{"redis://:p@h", refused("NOPERM this user has no permissions to run the 'client|tracking' command"),
			"ACL SETUSER default +client|tracking ("},
		{"redis+cluster://u:p@h", refused("NOPERM this user has no permissions to access one of the channels used as arguments"),
			"ACL SETUSER u '&hf:*' ("},
		{"redis+quorum://u:p@h,i,j", refused("NOPERM this user has no permissions to access one of the keys used as arguments"),
			"ACL SETUSER u '~hfq:*' ("},
		{"redis://u:p@h", refused("ERR The user executing the script can't run this command or subcommand script: x, on @user_script:1."),
			"ACL LOG at the server shows which (docs/redis.md has"},
		{"redis://h", refused("OOM command not allowed when used memory > 'maxmemory'."), "; raise maxmemory, or "},
		{"redis://h", refused("MISCONF Redis is configured to save …"), "; the server's log says why"},
		{"rediss://u:p@h", silent, "same URL without TLS begins with redis://"},
		{"rediss+sentinel://h/m", silent, "same URL without TLS begins with redis+sentinel://"},
		{"zks://h", silent, "same URL without TLS begins with zk://"},
		{"valkey://h", closed, "it may speak TLS only: such a URL begins with valkeys://"},
		{"rediss://h", closed, ""},
		{"redis://h", refused("DAMAGED hf:{00}:l:x: nonsense"), "; no request for this name works until"},
		{"sqlite:x", fmt.Errorf("%w: x", holdfast.ErrDamaged), "; no request for this name works until"},
		{"redis://h?dialect=redisson", fmt.Errorf("%w: x: it is no lock of Redisson, but a hash with other fields", holdfast.ErrDamaged),
			"; the key may be another program's data: keep it"},
		{"redis+quorum://h:1,i:2,j:3", fmt.Errorf("%w: 2 of 3 servers failed: h:1: memory is full (OOM command not …); i:2: x",
			holdfast.ErrRefused), "; raise maxmemory"},
		{"redis://127.0.0.1:1", silent, "; no connection is possible either: "},
		{"redis://u:p@127.0.0.1:1,127.0.0.1:1", silent, "; no connection is possible either: "},
		{"redis+unix:///nowhere", silent, ""},
		{"sqlite:x", fmt.Errorf("%w: open x: it belongs to root, and this is ci", holdfast.ErrRefused),
			"; run holdfast as that user"},
		{"redis://h", fmt.Errorf("%w: h is a replica; its primary is i:1", holdfast.ErrRefused), "; use that server"},
		{"mysql://u@h/d?tls=true", fmt.Errorf("%w: TLS requested but server does not support TLS", holdfast.ErrUnavailable),
			"; the URL asks for TLS"},
		{"postgres://h/d", closed, ""},
		{"postgres://h/d", fmt.Errorf("%w: h:1: received unexpected message: %%!w(<nil>)", holdfast.ErrUnavailable),
			"received unexpected message; what answers there is no PostgreSQL"},
		{"redis://h", refused("LOADING Redis is loading the dataset in memory"), ""},
	} {
		a := &app{store: c.url}
		text := a.withAdvice(c.err)
		if c.want == "" && text != oneLine(c.err.Error()) || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", c.url, text, c.want)
		}
		if masked := a.message(text); c.want != "" && !strings.Contains(masked, c.want) {
			t.Errorf("%s: %q is shown as %q", c.url, text, masked)
		}
		text = a.withAdvice(hinted{c.err})
		if toDoctor := strings.HasSuffix(text, "may say more about the store"); toDoctor != (c.want == "") {
			t.Errorf("%s: %q", c.url, text)
		}
	}
	t.Setenv(envHeld, "x")
	t.Setenv(envURL, "redis://u@h")
	const nested = `inside "holdfast run" there is no password`
	if text := (&app{}).withAdvice(refused("NOAUTH x")); !strings.Contains(text, nested) {
		t.Error(text)
	}
	if text := (&app{}).withAdvice(refused("OOM x")); !strings.Contains(text, "; raise maxmemory, or ") {
		t.Error(text)
	}
}
