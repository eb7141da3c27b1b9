package open

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	godriver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

func TestMySQLConfig(t *testing.T) {
	for url, want := range map[string]godriver.Config{
		"mysql://u@h/d":          {User: "u", Net: "tcp", Addr: "h:3306", DBName: "d", Timeout: 5 * time.Second},
		"MariaDB://u:@H:03306/d": {User: "u", Net: "tcp", Addr: "h:3306", DBName: "d", Timeout: 5 * time.Second},
		"mysql://u%40x:p%2F%3A:@:,%25+@[::1]:7/a%20b?timeout=100ms&readTimeout=1h&tls=off": {
			User: "u@x", Passwd: "p/::@:,%+", Net: "tcp", Addr: "[::1]:7", DBName: "a b", Timeout: 100 * time.Millisecond,
			ReadTimeout: time.Hour,
		},
		"mysql://u:p@/d?socket=/run/mysqld/mysqld.sock": {User: "u", Passwd: "p", Net: "unix",
			Addr: "/run/mysqld/mysqld.sock", DBName: "d", Timeout: 5 * time.Second},
		"mysql://u@Localhost/d?socket=%2Fa%20b": {User: "u", Net: "unix", Addr: "/a b", DBName: "d",
			Timeout: 5 * time.Second},
	} {
		got, err := mySQLConfig(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		shown := godriver.Config{User: got.User, Passwd: got.Passwd, Net: got.Net, Addr: got.Addr, DBName: got.DBName,
			Timeout: got.Timeout, ReadTimeout: got.ReadTimeout}
		if shown.FormatDSN() != want.FormatDSN() || got.TLS != nil {
			t.Errorf("%s: %s; want %s", url, shown.FormatDSN(), want.FormatDSN())
		}
		if _, nop := got.Logger.(*godriver.NopLogger); !nop {
			t.Errorf("%s: the driver writes to %T", url, got.Logger)
		}
	}
}

// An invalid URL is refused with the reason, and without the password.
func TestMySQLNonsense(t *testing.T) {
	for url, word := range map[string]string{
		"mysql:h":                                    "no //",
		"mysql:///d":                                 "no user",
		"mysql://h/d":                                "no user",
		"mysql://:s3cret@h/d":                        "no user",
		"mysql://u@/d":                               "no host",
		"mysql://u@h":                                "no database",
		"mysql://u@h/":                               "no database",
		"mysql://u@h/a/b":                            "slash",
		"mysql://u@h/a%2Fb":                          "slash",
		"mysql://u:s3cret@h1,h2/d":                   "several servers",
		"mysql://u:s3cret@h:x/d":                     "port",
		"mysql://u:s3cret@h:70000/d":                 "port",
		"mysql://u:s3cret@::1/d":                     "needs brackets",
		"mysql://u:s3cret/x@h/d":                     "%2F",
		"mysql://u:s3cret?x@h/d":                     "%3F",
		"mysql://u:s3cret#x@h/d":                     "%23",
		"mysql://u:s3cret%zz@h/d":                    "percent-encoded",
		"mysql://u:s3cret\"@h/d":                     "percent-encoded",
		"mysql://u:s3cret":                           "no user",
		"mysql://u@h/d#x":                            "%23",
		"mysql://u@tcp(h:3306)/d":                    "invalid host name",
		"mysql://u@h/d?parseTime=true":               `"parseTime" is unknown`,
		"mysql://u@h/d?readtimeout=5s":               `"readtimeout" is unknown`,
		"mysql://u@h/d?timeout=5":                    "its unit",
		"mysql://u@h/d?timeout=0s":                   "from 100ms to 1h",
		"mysql://u@h/d?readTimeout=1s":               "from 3s to 1h",
		"mysql://u@h/d?readTimeout=2h":               "from 3s to 1h",
		"mysql://u@h/d?timeout=":                     "empty",
		"mysql://u@h/d?timeout=1s&timeout=2s":        "twice",
		"mysql://u@h/d?timeout=1s;tls=true":          "query",
		"mysql://u@h/d?tls=preferred":                "true, skip-verify or off",
		"mysql://u@h/d?tls=off&ca=x":                 "for tls=true",
		"mysql://u@h/d?servername=x":                 "for tls=true",
		"mysql://u@h/d?tls=skip-verify&ca=/x":        "ca: ",
		"mysql://u@h/d?tls=skip-verify&servername=x": "does not look at servername",
		"mysql://u@h/d?tls=true&ca=/does/not/exist":  "ca: ",
		"mysql://u@h/d?tls=true&cert=/x":             "go together",
		"mysql://u@h/d?socket=/s":                    "a host and a socket",
		"mysql://u@localhost:3306/d?socket=/s":       "a host and a socket",
		"mysql://u@/d?socket=s":                      "absolute",
	} {
		for _, open := range []func() error{
			func() error { _, err := Open(t.Context(), url); return err },
			func() error { _, err := Schema(url); return err },
			func() error { _, err := Init(t.Context(), url); return err },
		} {
			err := open()
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), word) ||
				!strings.Contains(err.Error(), "allowed are mysql://HOST") &&
					!strings.HasSuffix(err.Error(), "did you mean mysql://h?") {
				t.Errorf("%q: %v; want ErrInvalid that says %q, and what is allowed", url, err, word)
			} else if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%q: %v", url, err)
			}
		}
	}
}

func TestMySQLTLSFiles(t *testing.T) {
	certs := testenv.NewCerts(t)
	files := "&cert=" + certs.Cert + "&key=" + certs.Key
	c, err := mySQLConfig("mysql://u@h/d?tls=true&servername=db&ca=" + certs.CA + files)
	if err != nil || c.TLS.RootCAs == nil || len(c.TLS.Certificates) != 1 || c.TLS.ServerName != "db" ||
		c.TLS.InsecureSkipVerify {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = mySQLConfig("mysql://u@h/d?tls=skip-verify" + files); err != nil || !c.TLS.InsecureSkipVerify ||
		len(c.TLS.Certificates) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

// places checks that the URLs of each list have one place, and that each list has another.
func places(t *testing.T, lists [][]string) {
	t.Helper()
	seen := map[string]string{}
	for _, same := range lists {
		want := ""
		for _, url := range same {
			s, err := Open(t.Context(), url)
			if err != nil {
				t.Fatalf("%s: %v", url, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if want == "" {
				want = s.Place
			}
			if s.Place != want || want == "" || strings.Contains(s.Place, "s3cret") {
				t.Errorf("%s: %s, but %s: %s", url, s.Place, same[0], want)
			}
		}
		if other, ok := seen[want]; ok {
			t.Errorf("%s and %s are one place", other, same[0])
		}
		seen[want] = same[0]
	}
}

func TestMySQLPlace(t *testing.T) {
	places(t, [][]string{
		{"mysql://u@h/d", "mariadb://x:s3cret@H:3306/d?tls=true&timeout=1s", "mysql://u@h:03306/d"},
		{"mysql://u@h/D"},
		{"mysql://u@h:1/d"},
		{"mysql://u@/d?socket=/s", "mysql://x:s3cret@localhost/d?socket=%2Fs"},
		{"mysql://u@/d?socket=/t"},
		{"postgres://u@h/d"},
	})
}

// FuzzMySQL: any URL is accepted with a server to connect to, or refused without showing its
// password. A URL for commands has no password.
func FuzzMySQL(f *testing.F) {
	for _, seed := range []string{
		"mysql://u:secretword@h:1/d?timeout=1s&readTimeout=5s&tls=true", "mariadb://u:secretword@/d?socket=/s",
		"mysql://u:secretword@h:x/", "mysql://:secretword@",
		"mysql://u:secretword@[::1/d", "mysql://u:secretword@h/%zz", "mysql://u:secretword@/@?@#@", "mysql:x://a/b",
		"mysql@://a/b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if strings.Contains(raw, "cert=") || strings.Contains(raw, "ca=") || strings.Contains(raw, "key=") {
			return // the parameters name files
		}
		cfg, err := mySQLConfig(raw)
		inside := strings.Contains(raw, ":secretword@") && strings.Count(raw, "secretword") == 1
		switch {
		case err == nil && (cfg.User == "" || cfg.Addr == "" || cfg.DBName == "" || cfg.Timeout <= 0):
			t.Errorf("%q: nothing to connect to", raw)
		case err != nil && !errors.Is(err, driver.ErrInvalid):
			t.Errorf("%q: %v; want ErrInvalid", raw, err)
		case err != nil && inside && strings.Contains(err.Error(), "secretword"):
			t.Errorf("%q: %v", raw, err)
		}
		if err != nil {
			return
		}
		clean, ok := WithoutPassword(raw)
		if !ok {
			return
		}
		again, err := mySQLConfig(clean)
		if err != nil {
			t.Fatalf("%q without its password is %q: %v", raw, clean, err)
		}
		cfg.Passwd, cfg.TLS, again.TLS = "", nil, nil
		if got, want := again.FormatDSN(), cfg.FormatDSN(); got != want {
			t.Errorf("%q without its password is %q: %s; want %s", raw, clean, got, want)
		}
		if _, err := url.Parse(clean); err != nil && !strings.Contains(clean, ",") {
			t.Errorf("%q: %v", clean, err)
		}
	})
}
