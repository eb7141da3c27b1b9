package redislock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/redislock"
)

// Users that can forge a push but may take no locks are reported, and no other users.
func TestDoctorUsers(t *testing.T) {
	t.Parallel()
	server := testenv.RedisACL(t, []string{strings.Replace(aclRule, "user holdfast", "user asker", 1) +
		" +info +config|get " + askUsers}, good...)
	dial := map[string]redislock.Conn{
		"asker":   dialURL(t, "redis://asker:secret@"+server.Addr),
		"default": dialGoRedis(t, server.Addr),
	}
	change := everywhere(t, server)
	look := func(as string, want driver.Severity, says string) {
		t.Helper()
		if f := diagnose(t, dial[as], 15*time.Second)["redis.users"]; f.Severity != want ||
			f.Danger() != (want == driver.Endangers) || !strings.Contains(f.Found, says) {
			t.Errorf("as %s: %+v, want %v with %q", as, f, want, says)
		}
	}
	look("default", driver.Unclear, "needs no password")
	look("asker", driver.Endangers, "needs no password")
	change("ACL SETUSER default resetpass >secret")
	look("asker", driver.Fine, "(asker, default)")

	for rule, does := range map[string]bool{
		"~theirs:* &* +@all -@admin -@dangerous":    true, // as Redis 6.2 makes users
		"%R~hf:* &hf:s:* +publish +hgetall":         true,
		"resetkeys &* +publish +monitor":            true,
		"~theirs:* &theirs:* +@all":                 false,
		"resetkeys resetchannels &* +publish":       false, // knows no request
		"%R~hf:* resetchannels &hf:s:* +@read":      false, // cannot publish
		"~hf:* resetchannels &hf:s:* +@all -@admin": false, // takes locks
	} {
		change("ACL SETUSER stranger reset on >p " + rule)
		if want, says := driver.Fine, "all users that may publish"; !does {
			look("asker", want, says)
			continue
		}
		look("asker", driver.Endangers, "know what to publish: stranger")
		change("ACL SETUSER stranger off")
		look("asker", driver.Fine, "all users that may publish")
		change("ACL SETUSER stranger on resetchannels &theirs:*")
		look("asker", driver.Fine, "all users that may publish")
	}
	change("ACL SETUSER asker -acl|dryrun")
	look("asker", driver.Unclear, "NOPERM")
}

// ofVersion makes the servers report another version.
type ofVersion struct {
	redislock.Conn
	version string
}

func (o ofVersion) AskAll(ctx context.Context, servers []string, commands ...[]string) []redislock.Answers {
	all := o.Conn.(redislock.Asker).AskAll(ctx, servers, commands...)
	for _, a := range all {
		for i, r := range a.Results {
			_, after, ok := strings.Cut(r.Value.Text, "redis_version:")
			is, _, _ := strings.Cut(after, "\r\n")
			if ok {
				a.Results[i].Value.Text = strings.Replace(r.Value.Text, "redis_version:"+is, "redis_version:"+o.version, 1)
			}
		}
	}
	return all
}

func TestDoctorVersion(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, good...)
	for version, want := range map[string]driver.Severity{
		"6.0.16": driver.Unclear, "6.2.6": driver.Endangers, "6.2.7": driver.Fine, "6.9.242": driver.Endangers,
		"7.0.0": driver.Fine, "7.2": driver.Fine, "?": driver.Unclear,
	} {
		b := redislock.New(ofVersion{dialRueidis(t, server.Addr), version}, nil)
		list, err := b.Diagnose(within(t, soon), 15*time.Second)
		_ = b.Close()
		for _, f := range list {
			if f.Code == "redis.version" && (f.Severity != want ||
				strings.Contains(f.Found, "CVE-2022-24735") != (want == driver.Endangers)) {
				t.Errorf("%s: %+v, want %v", version, f, want)
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
}
