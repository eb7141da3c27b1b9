package rueidisconn

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/driver"
)

func TestParse(t *testing.T) {
	opt, err := parse("redis://me:p%40ss@db.example/4")
	if err != nil || opt.InitAddress[0] != "db.example:6379" || opt.Username != "me" || opt.Password != "p@ss" ||
		opt.SelectDB != 4 {
		t.Errorf("%+v, %v", opt, err)
	}
	opt, err = parse("redis://[::1]:7000")
	if err != nil || opt.InitAddress[0] != "[::1]:7000" {
		t.Errorf("%+v, %v", opt, err)
	}
	opt, err = parse("redis+unix://:pw@/run/redis.sock?db=2")
	if err != nil || opt.InitAddress[0] != "/run/redis.sock" || opt.Password != "pw" || opt.SelectDB != 2 ||
		opt.DialCtxFn == nil {
		t.Errorf("%+v, %v", opt, err)
	}
	opt, err = parse("rediss://db.example?servername=other.example")
	if err != nil || opt.TLSConfig == nil || opt.TLSConfig.ServerName != "other.example" ||
		opt.TLSConfig.InsecureSkipVerify {
		t.Errorf("%+v, %v", opt, err)
	}
}

func TestParseSeveral(t *testing.T) {
	opt, err := parse("redis+sentinel://me:p%40ss@s1,s2:7,[::1],S1:26379/mymaster/3?sentineluser=w&sentinelpassword=q%26")
	if err != nil || strings.Join(opt.InitAddress, " ") != "s1:26379 s2:7 [::1]:26379" ||
		opt.Password != "p@ss" || opt.SelectDB != 3 ||
		opt.Sentinel.MasterSet != "mymaster" || opt.Sentinel.Username != "w" || opt.Sentinel.Password != "q&" ||
		opt.Sentinel.TLSConfig != nil {
		t.Errorf("%+v, %v", opt, err)
	}
	for url, both := range map[string]bool{"rediss+sentinel://h/m": true, "rediss+sentinel://h/m?sentineltls=no": false} {
		opt, err = parse(url)
		if err != nil || opt.TLSConfig == nil || (opt.Sentinel.TLSConfig != nil) != both || !opt.ForceSingleClient {
			t.Errorf("%s: %+v, %v", url, opt, err)
		}
	}
	opt, err = parse("rediss+cluster://me:pw@h1,h2:7000,h1:6379/0?servername=redis.example")
	if err != nil || strings.Join(opt.InitAddress, " ") != "h1:6379 h2:7000" || opt.ForceSingleClient ||
		opt.TLSConfig.ServerName != "redis.example" || opt.Username != "me" {
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
		"", "x", "http://h", "redis://", "redis:h", "redis://u:" + canary + "@h:port", "redis://u:" + canary + "@h:0",
		"redis://u:" + canary + "@h/x",
		"redis://u:" + canary + "@h/1/2", "redis://u:" + canary + "@h/-1", "redis://u:" + canary + "@h?x=1",
		"redis://u:" + canary + "@h?ca=x",
		"redis://u:" + canary + "%zz@h", "redis://u:" + canary + "@h\x7f", "redis://u:" + canary + "@h#f",
		"redis://u:" + canary + "@h?%zz",
		"unix://u:" + canary + "@", "unix://host/path", "unix:///s?db=x", "unix:///s?db=1&db=2",
		"rediss://u:" + canary + "@h?cert=x", "rediss://u:" + canary + "@h?ca=/does/not/exist",
		"rediss://u:" + canary + "@h?ca=" + empty,
		"rediss://u:" + canary + "@h?cert=" + empty + "&key=" + empty,
		"redis://u:" + canary + "@h1,h2", "rediss+unix:///s", "redis+sentinel://u:" + canary + "@h", "redis+sentinel://h/",
		"redis+sentinel:///m",
		"redis+sentinel://u:" + canary + "@h1,,h2/m", "redis+sentinel://h1:1:2/m", "redis+sentinel://h/m/x",
		"redis+sentinel://h/m/1/2", "redis+sentinel://[::1/m",
		"redis+sentinel://h/m?sentineluser=x", "redis+sentinel://h/m?sentinelpassword=" + canary + "&sentinelpassword=" +
			canary,
		"redis+sentinel://h/m?sentineltls=no", "rediss+sentinel://h/m?sentineltls=yes", "redis+sentinel://h/m?ca=x",
		"redis+sentinel://u:" + canary + "h/m",
		"redis+cluster://u:" + canary + "@h/1", "redis+cluster://h/x", "redis+cluster://h?sentineluser=x", "redis+cluster://",
		"redis+cluster://h_1,h 2", "redis+quorum://h",
	} {
		_, err := Dial(url)
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: %v; want ErrInvalid", url, err)
		} else if strings.Contains(err.Error(), canary) || !strings.Contains(err.Error(), "allowed are") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// An error shows its URL, with every possible password masked.
func TestRefusalsShowTheURL(t *testing.T) {
	for url, want := range map[string]string{
		"redis://db.example:port":                "redis://db.example:***",
		"redis://me:s3cr3t@db.example:port/2":    "redis://me:***@db.example:port/2",
		"redis://me:s3/c#r3?t@h@db.example:0/2":  "redis://me:***@db.example:0/2",
		"redis://s3cr3t@db.example:x":            "redis://***@db.example:x",
		"redis://me:s3cr3t":                      "redis://me:***",
		"redis://me:s3/cr3t":                     "redis://me:***",
		"redis+sentinel://:s3cr3t@s1,s2:7":       "redis+sentinel://:***@s1,s2:7",
		"rediss://db.example?cert=c.pem&pw=s3":   "rediss://db.example?cert=c.pem&pw=***",
		"redis+sentinel://h?sentinelpassword=s3": "redis+sentinel://h?sentinelpassword=***",
		"redis://h/1?replicas=none&x=s3":         "redis://h/1?replicas=none&x=***",
		"redis://me:12?s3cr3t@db.example":        "redis://me:***@db.example",
		"redis://me:12?x&s3cr3t=1@db.example":    "redis://me:***@db.example",
		"rediss://me:12?ca=s3cr3t@db.example":    "rediss://me:***@db.example",
		"redis://me:1@2?s3cr3t@db.example":       "redis://me:***@db.example",
	} {
		_, err := Open(url)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), `"`+want+`"`) ||
			strings.Contains(err.Error(), "s3") {
			t.Errorf("%q: %v; want %q in it", url, err, want)
		}
	}
}

// TestNoRedis: the server is another program. Nothing was asked of it, so no outcome is unknown.
func TestNoRedis(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("SSH-2.0-Other\r\n"))
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	addr := l.Addr().String()
	for _, url := range []string{"redis://" + addr, "redis+sentinel://" + addr + "/m", "redis+cluster://" + addr} {
		if _, err := Dial(url); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUncertain) {
			t.Errorf("%s: %v; want ErrUnavailable", url, err)
		}
	}
}

// FuzzParse: any URL results in something to connect to, or in an error that does not show its
// password.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"redis://u:secretword@h:1/2", "rediss://h?ca=/x", "unix:///s?db=1",
		"redis://u:secretword@h:x", "redis://[::1", "\x00",
		"redis+sentinel://u:secretword@h1:1,h2/m/1?sentineluser=u&sentinelpassword=p",
		"rediss+cluster://u:secretword@h1,[::1]:7/0?servername=x", "redis+sentinel://h1,h2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		if strings.Contains(url, "cert=") || strings.Contains(url, "ca=") || strings.Contains(url, "key=") {
			return // they name files
		}
		opt, err := parse(url)
		switch {
		case err == nil && (len(opt.InitAddress) == 0 || slices.Contains(opt.InitAddress, "")):
			t.Errorf("%q: nothing to connect to", url)
		case err == nil && len(opt.InitAddress) > 1 && opt.ForceSingleClient && opt.Sentinel.MasterSet == "":
			t.Errorf("%q: several servers %v, and no more known", url, opt.InitAddress)
		case err != nil && !errors.Is(err, driver.ErrInvalid):
			t.Errorf("%q: %v; want ErrInvalid", url, err)
		case err != nil && strings.Contains(err.Error(), "secretword") && strings.Contains(url, ":secretword@"):
			t.Errorf("%q: %v", url, err)
		}
	})
}
