package open

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
	"github.com/holdfast-lock/holdfast/internal/storeurl"
	"github.com/holdfast-lock/holdfast/internal/testenv"
	"github.com/holdfast-lock/holdfast/zklock"
)

func TestZooKeeperConfig(t *testing.T) {
	one := []string{"h:2181"}
	for url, want := range map[string]zklock.Config{
		"zookeeper://h":                  {Servers: one, Root: "/holdfast"},
		"zk://H/":                        {Servers: one, Root: "/holdfast"},
		"ZooKeeper://h:2181?session=10s": {Servers: one, Root: "/holdfast", Session: 10 * time.Second},
		"zookeeper://h//":                {Servers: one, Root: "/"},
		"zookeeper://h/a%2Cb":            {Servers: one, Root: "/a,b"},
		"zookeeper://h/app/locks":        {Servers: one, Root: "/app/locks"},
		"zookeeper://h1:1,h2:02,h3/r": {
			Servers: []string{"h1:1", "h2:2", "h3:2181"}, Root: "/r",
		},
		"zookeeper://[::1],[FE80:0::1%25eth0]:7,10.0.0.1:8,a-b.c_d,a-b.c_d:2181": {
			Servers: []string{"[::1]:2181", "[fe80::1%eth0]:7", "10.0.0.1:8", "a-b.c_d:2181"}, Root: "/holdfast",
		},
		"zookeeper://u:p@h/a%20b%40c?acl=private&protocol=single": {
			Servers: one, Root: "/a b@c", User: "u", Password: "p", Access: zklock.Private, Protocol: zklock.Single,
		},
		"zookeeper://u%40x:p%2F%3A:@:,%25@h1,h2?protocol=ordered": {
			Servers: []string{"h1:2181", "h2:2181"}, Root: "/holdfast", User: "u@x", Password: "p/::@:,%",
		},
		"zookeeper://u@h": {Servers: one, Root: "/holdfast", User: "u"},
	} {
		got, err := zooKeeperConfig(url)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", url, got, err, want)
		}
	}
}

// An invalid URL is refused with the reason, and without the password.
func TestZooKeeperNonsense(t *testing.T) {
	for url, word := range map[string]string{
		"zk:h":                              "no //",
		"zk://":                             "server 1: there is no host",
		"zk:///root":                        "server 1: there is no host",
		"zk://h1,,h2":                       "server 2: there is no host",
		"zk://h,":                           "server 2: there is no host",
		"zk://:1":                           "server 1: there is no host",
		"zk://h:":                           "server 1: the port",
		"zk://h1,h:0":                       "server 2: the port",
		"zk://h:65536":                      "server 1: the port",
		"zk://h:+1":                         "server 1: the port",
		"zk://::1":                          "needs brackets",
		"zk://h1,fe80::1:2181":              "needs brackets",
		"zk://[::1":                         "IPv6",
		"zk://[::1]2181":                    "IPv6",
		"zk://[10.0.0.1]":                   "IPv6",
		"zk://[h]":                          "IPv6",
		"zk://h h":                          "invalid host name",
		"zk://h%41":                         "invalid host name",
		"zk://h;h2":                         "invalid host name",
		"zk://h1/a,h2":                      "comma",
		"zk://:s3cret@h":                    "no user",
		"zk://@h":                           "no user",
		"zk://u%3Ax:s3cret@h":               "colon",
		"zk://u:s3cret/x@h":                 "%2F",
		"zk://u:s3cret?x@h":                 "%3F",
		"zk://u:1?s3cret@h":                 "%3F",
		"zk://u:s3cret#x@h":                 "%23",
		"zk://u:s3cret%zz@h":                "percent-encoded",
		"zk://u:s3cret\"@h":                 "percent-encoded",
		"zk://u:s3cret@h:99999":             "the port",
		"zk://u:s3cret":                     "the port",
		"zk://h/r#x":                        "%23",
		"zk://h#":                           "%23",
		"zk://h/a//b":                       "root",
		"zk://h/a/":                         "root",
		"zk://h/../b":                       "root",
		"zk://h/zookeeper/x":                "root",
		"zk://h/a%00":                       "root",
		"zk://h?ssesion=10s":                `"ssesion" is unknown (did you mean session?)`,
		"zk://h?session=10":                 "its unit",
		"zk://h?session=-1s":                "its unit",
		"zk://h?session=0s":                 "its unit",
		"zk://h?session=1ms":                "100ms",
		"zk://h?session=240h":               "24h",
		"zk://h?session=":                   "empty",
		"zk://h?session=1s&session=2s":      "twice",
		"zk://h?session=1s;acl=private":     "query",
		"zk://h?protocol=Single":            "ordered or single",
		"zk://u:s3cret@h?acl=world":         "acl=world",
		"zk://h?acl=private":                "needs USER:PASSWORD@",
		"zk://h?ca=x":                       "zookeepers://",
		"zk://h?servername=x":               "zookeepers://",
		"zookeepers://h?ca=/does/not/exist": "ca: ",
		"zookeepers://h?cert=x":             "go together",
		"zookeepers://h?cert=/x&key=/y":     "cert and key: ",
		"zks://h?tls=no":                    "unknown",
	} {
		s, err := Open(t.Context(), url)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), "/") {
			t.Errorf("%q: %v, %v; want ErrInvalid that says %q, and what is allowed", url, s, err, word)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestZooKeeperTLSFiles(t *testing.T) {
	certs := testenv.NewCerts(t)
	cfg, err := zooKeeperConfig("zookeepers://h1,h2:3?ca=" + certs.CA + "&cert=" + certs.Cert + "&key=" + certs.Key +
		"&servername=zk")
	if err != nil || cfg.TLS.RootCAs == nil || len(cfg.TLS.Certificates) != 1 || cfg.TLS.ServerName != "zk" {
		t.Errorf("%+v, %v", cfg, err)
	}
	if cfg, err = zooKeeperConfig("zks://h"); err != nil || cfg.TLS == nil || cfg.TLS.ServerName != "" ||
		cfg.TLS.RootCAs != nil {
		t.Errorf("%+v, %v", cfg, err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = zooKeeperConfig("zks://h?ca=" + empty); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
}

func TestZooKeeperPlace(t *testing.T) {
	place := func(url string) string {
		s, err := Open(t.Context(), url)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if s.Name() != "zookeeper" || s.Place == "" || strings.Contains(s.Place, "s3cret") {
			t.Errorf("%s: %s, %s", url, s.Name(), s.Place)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return s.Place
	}
	seen := map[string]string{}
	for _, same := range [][]string{
		{"zookeeper://h", "zk://H:2181/", "zk://u:s3cret@h/holdfast?session=4s", "zookeepers://h:02181", "zk://h,h:2181"},
		{"zk://h1:1,h2/r", "zk://h2:2181,H1:1/r?protocol=ordered"},
		{"zk://h1:1,h2/r?protocol=single"},
		{"zk://[::1]", "zk://[0:0::1]:2181"},
		{"zk://h//"},
		{"zk://h:1"},
		{"zk://h/r"},
	} {
		want := place(same[0])
		for _, url := range same {
			if got := place(url); got != want {
				t.Errorf("%s: %s, but %s: %s", url, got, same[0], want)
			}
		}
		if other, ok := seen[want]; ok {
			t.Errorf("%s and %s are one place", other, same[0])
		}
		seen[want] = same[0]
	}
}

// FuzzZooKeeper: any URL is accepted with a server to connect to, or refused without showing its
// password. A URL for commands has no password.
func FuzzZooKeeper(f *testing.F) {
	for _, seed := range []string{
		"zookeeper://u:secretword@h1:1,[::1]:2,h3/a/b?session=10s&protocol=single&acl=private", "zk://u:secretword@h:x",
		"zk://:secretword@",
		"zks://h", "zk://u:secretword@[::1", "zk://u:secretword@h/%zz", "zk://u:secretword@/@?@#@", "\x00", "0@/0!0://0,0",
		"zk:x://a,b", "zk@://a,b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		if strings.Contains(url, "cert=") || strings.Contains(url, "ca=") || strings.Contains(url, "key=") {
			return // the parameters name files
		}
		cfg, err := zooKeeperConfig(url)
		// The word is in the place of the password, and nowhere else.
		inside := strings.Contains(url, ":secretword@") && strings.Count(url, "secretword") == 1
		switch {
		case err == nil && (len(cfg.Servers) == 0 || cfg.Root == ""):
			t.Errorf("%q: nothing to connect to", url)
		case err != nil && !errors.Is(err, driver.ErrInvalid):
			t.Errorf("%q: %v; want ErrInvalid", url, err)
		case err != nil && inside && strings.Contains(err.Error(), "secretword"):
			t.Errorf("%q: %v", url, err)
		}
		if err != nil {
			return
		}
		for _, s := range cfg.Servers {
			if again, err := storeurl.HostPort(s, zooKeeperPort); err != nil || again != s {
				t.Errorf("%q: server %q is %q, %v", url, s, again, err)
			}
		}
		if clean, ok := WithoutPassword(url); ok {
			again, err := zooKeeperConfig(clean)
			if cfg.Password = ""; cfg.TLS != nil {
				cfg.TLS, again.TLS = nil, nil
			}
			if err != nil || !reflect.DeepEqual(again, cfg) {
				t.Errorf("%q without its password is %q: %+v, %v; want %+v", url, clean, again, err, cfg)
			}
		}
	})
}
