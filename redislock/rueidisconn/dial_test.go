package rueidisconn

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

func TestParse(t *testing.T) {
	opt, err := parse("redis://me:p%40ss@db.example/4")
	if err != nil || opt.InitAddress[0] != "db.example:6379" || opt.Username != "me" || opt.Password != "p@ss" || opt.SelectDB != 4 {
		t.Errorf("%+v, %v", opt, err)
	}
	opt, err = parse("redis://[::1]:7000")
	if err != nil || opt.InitAddress[0] != "[::1]:7000" {
		t.Errorf("%+v, %v", opt, err)
	}
	opt, err = parse("redis+unix://:pw@/run/redis.sock?db=2")
	if err != nil || opt.InitAddress[0] != "/run/redis.sock" || opt.Password != "pw" || opt.SelectDB != 2 || opt.DialCtxFn == nil {
		t.Errorf("%+v, %v", opt, err)
	}
	opt, err = parse("rediss://db.example?servername=other.example")
	if err != nil || opt.TLSConfig == nil || opt.TLSConfig.ServerName != "other.example" || opt.TLSConfig.InsecureSkipVerify {
		t.Errorf("%+v, %v", opt, err)
	}
}

func TestParseRefuses(t *testing.T) {
	const canary = "s3cr3t"
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{
		"", "x", "http://h", "redis://", "redis:h", "redis://u:" + canary + "@h:port", "redis://u:" + canary + "@h:0", "redis://u:" + canary + "@h/x",
		"redis://u:" + canary + "@h/1/2", "redis://u:" + canary + "@h/-1", "redis://u:" + canary + "@h?x=1", "redis://u:" + canary + "@h?ca=x",
		"redis://u:" + canary + "%zz@h", "redis://u:" + canary + "@h\x7f", "redis://u:" + canary + "@h#f", "redis://u:" + canary + "@h?%zz",
		"unix://u:" + canary + "@", "unix://host/path", "unix:///s?db=x", "unix:///s?db=1&db=2",
		"rediss://u:" + canary + "@h?cert=x", "rediss://u:" + canary + "@h?ca=/does/not/exist", "rediss://u:" + canary + "@h?ca=" + empty,
		"rediss://u:" + canary + "@h?cert=" + empty + "&key=" + empty,
	} {
		_, err := Dial(url)
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: %v; want ErrInvalid", url, err)
		} else if strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), "allowed are") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// FuzzParse: any URL is parsed into something to connect to, or refused without showing
// its password.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"redis://u:secretword@h:1/2", "rediss://h?ca=/x", "unix:///s?db=1", "redis://u:secretword@h:x", "redis://[::1", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		if strings.Contains(url, "cert=") || strings.Contains(url, "ca=") || strings.Contains(url, "key=") {
			return // they name files
		}
		opt, err := parse(url)
		switch {
		case err == nil && (len(opt.InitAddress) != 1 || opt.InitAddress[0] == ""):
			t.Errorf("%q: nothing to connect to", url)
		case err != nil && !errors.Is(err, driver.ErrInvalid):
			t.Errorf("%q: %v; want ErrInvalid", url, err)
		case err != nil && strings.Contains(err.Error(), "secretword") && strings.Contains(url, ":secretword@"):
			t.Errorf("%q: %v", url, err)
		}
	})
}
