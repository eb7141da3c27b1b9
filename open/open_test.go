package open

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-lock/holdfast/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOpenSQLitePlaces(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	places := map[string][]string{}
	for _, url := range []string{
		"sqlite:a.db", "sqlite:./a.db", "sqlite:" + dir + "/a.db", "sqlite://" + dir + "/a.db",
		"SQLITE://localhost" + dir + "/a.db",
		"", "sqlite:state/holdfast/locks.db", "sqlite:b.db",
	} {
		s, err := Open(t.Context(), url)
		if err != nil {
			t.Fatalf("%q: %v", url, err)
		}
		places[s.Place] = append(places[s.Place], url)
		if s.Name() != "sqlite" {
			t.Errorf("%q is %s", url, s.Name())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(places) != 3 {
		t.Errorf("three files, but %v", places)
	}
}

func TestOpenMemory(t *testing.T) {
	for _, url := range []string{"memory:", "memory://", "MEMORY:"} {
		s, err := Open(t.Context(), url)
		if err != nil || s.Name() != "memory" || s.Place != "" {
			t.Errorf("%q: %v %v", url, s, err)
		}
	}
}

func TestOpenRefusesNonsense(t *testing.T) {
	for _, url := range []string{
		"x", ":", "//h", "/path", "memory:x", "sqlite:", "sqlite:/", "sqlite:///", "sqlite://host/x", "sqlite:dir/",
		"sqlite:relative\x00",
		"redis:", "redis://", "redis://h/x", "redis://h:99999", "redis://h?replicas=x", "redis://h?replica-timeout=1s",
		"redis+cluster://h?replicas=0", "unix://h/x", "zookeeper://", "zookeeper:h", "etcd://h", "redis+sentinel://h",
		"redis+sentinel://h:99999/m", "redis+cluster://", "redis+cluster://h/1", "redis+quorum://h", "a b:c", "file:x",
	} {
		s, err := Open(t.Context(), url)
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: %v %v, want ErrInvalid", url, s, err)
		}
	}
}

// A URL that was nearly right is answered with what was meant. Valkey is Redis by another name.
func TestOpenSuggests(t *testing.T) {
	for url, want := range map[string]string{
		"localhost:6379":       "it has no scheme; did you mean redis://localhost:6379?",
		"localhost":            "it has no scheme; did you mean redis://localhost:6379?",
		"redis:/localhost":     "it has no // after the scheme; did you mean redis://localhost?",
		"redis:h:7/2":          "it has no // after the scheme; did you mean redis://h:7/2?",
		"redis:u:s3cret@h":     "it has no // after the scheme, as in redis://localhost:6379",
		"redsi://h":            "the scheme redsi: is unknown; did you mean redis://?",
		"db-1.example:5432/d":  "it has no scheme; did you mean postgres://db-1.example:5432?",
		"pgsql://h/d":          "the scheme pgsql: is unknown; did you mean postgres://?",
		"sqlite3:x.db":         "the scheme sqlite3: is unknown; did you mean sqlite:?",
		"redis-cluster://h":    "the scheme redis-cluster: is unknown; did you mean redis+cluster://?",
		"valkey+nonsense://h":  "the scheme valkey+nonsense: is unknown; allowed are sqlite:PATH, redis://",
		"http://user:secret@h": "the scheme http: is unknown; allowed are sqlite:PATH, redis://",
	} {
		_, err := Open(t.Context(), url)
		if err == nil || !strings.HasPrefix(err.Error(), driver.ErrInvalid.Error()+" store URL: "+want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
	for url, want := range map[string]string{
		"valkey://h:1/2": "redis://h:1/2", "VALKEYS+sentinel://h/m": "rediss+sentinel://h/m",
		"valkeyx://h": "valkeyx://h", "redis://h": "redis://h", "": "",
	} {
		if got := asRedis(url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	// The store or the end may come first. In both cases nothing is left open.
	s, err := Open(ctx, "memory:")
	if err == nil {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	} else if !errors.Is(err, cause) {
		t.Error(err)
	}
}

func TestRedisPlace(t *testing.T) {
	for _, same := range [][]string{
		{"redis://h", "redis://u:p@H:6379/0", "rediss://h:6379/00", "redis://h/", "redis://h?replicas=2&replica-timeout=1s"},
		{"redis://h/1", "redis://h:6379/01"},
		{"redis://h:1"},
		{"unix:///s", "redis+unix://:p@/s?db=0"},
		{"unix:///s?db=1"},
		{"redis+sentinel://h1,h2/m", "rediss+sentinel://u:p@H2:26379,h1,h2/m/0?sentinelpassword=p"},
		{"redis+sentinel://h1,h2/m/1"},
		{"redis+cluster://h1,[::1]:7", "rediss+cluster://u:p@[0::1]:7,H1:6379/0"},
	} {
		for _, url := range same {
			if got := redisPlace(url); got != redisPlace(same[0]) || strings.Contains(got, "p@") {
				t.Errorf("%s: %s, but %s: %s", url, got, same[0], redisPlace(same[0]))
			}
		}
	}
	if redisPlace("redis://h/1") == redisPlace("redis://h/0") || redisPlace("redis://h") == redisPlace("redis://h:1") {
		t.Error("two databases with one place")
	}
}

func TestScrub(t *testing.T) {
	const url = "redis://user:s%40crt-81x@h:1/0?auth=hidden-81x"
	for _, text := range []string{
		"dial " + url + ": refused", "password s@crt-81x is wrong", "password s%40crt-81x is wrong", "hidden-81x",
		"another: redis://u:s@crt-81x@h", `parse "redis://x:s%40crt-81x@": no`,
	} {
		got := Scrub(text, url)
		for _, secret := range []string{"s@crt-81x", "s%40crt-81x", "hidden-81x"} {
			if strings.Contains(got, secret) {
				t.Errorf("%q", got)
			}
		}
	}
	if got := Scrub("dial redis://h:1/0: refused by a@b", "redis://h:1/0"); got != "dial redis://h:1/0: refused by a@b" {
		t.Errorf("%q: too much", got)
	}
	const template = "allowed are redis://[user:password@]host[:port][/db], unix:///path?db=N, rediss+sentinel://[user:password@]host"
	if got := Scrub(template, url); got != template {
		t.Errorf("%q: a template has no password", got)
	}
	err := Redact(errors.Join(driver.ErrRefused, errors.New("s@crt-81x")), url)
	if !errors.Is(err, driver.ErrRefused) || strings.Contains(err.Error(), "s@crt-81x") {
		t.Error(err)
	}
}

// A list of hosts does not hide the secrets of the query.
func TestScrubSeveralHosts(t *testing.T) {
	const url = "zookeeper://user:s%40crt-81x@h1:1,h2:2/r?password=hidden-81x"
	got := Scrub("s@crt-81x, s%40crt-81x or hidden-81x; dial "+url, url)
	for _, secret := range []string{"s@crt-81x", "s%40crt-81x", "hidden-81x"} {
		if strings.Contains(got, secret) {
			t.Errorf("%q", got)
		}
	}
}

func TestWithoutPassword(t *testing.T) {
	for url, want := range map[string]string{
		"redis://h:1/2":                   "redis://h:1/2",
		"redis://u:secret@h:1/2":          "redis://u@h:1/2",
		"redis://:secret@h:1/2":           "redis://h:1/2",
		"redis+unix://u:secret@/s?db=1":   "redis+unix://u@/s?db=1",
		"x://h/?password=secret&keep=yes": "x://h/?keep=yes",
		"sqlite:/a/b":                     "sqlite:/a/b",
		"redis+sentinel://u:secret@h1:1,h2/m/1?sentineluser=w&sentinelpassword=secret": "redis+sentinel://u@h1:1,h2/m/1?sentineluser=w",
		"redis+cluster://u:secret@h1:1,h2":                                             "redis+cluster://u@h1:1,h2",
		"":                                                                             "",
		"redis://:secret%zz@h":                                                         "-",
		"redis://:secret@[::1":                                                         "-",

		"zookeeper://u:secret@h1:1,[::1]:2/r?session=1s": "zookeeper://u@h1:1,[::1]:2/r?session=1s",
		"zk://u:secret@h1,h2":                            "zk://u@h1,h2",
		"zk://u:secret@h1,h2?password=secret&x=y":        "zk://u@h1,h2?x=y",
		"zk://u:secret%zz@h1,h2":                         "-",
		"zk://h1:1,h2:2":                                 "zk://h1:1,h2:2",
		"zk://u:secret@h1,h2/r?x=a;b#y":                  "zk://u@h1,h2/r?x=a;b#y", // its user is told why it is invalid
	} {
		got, ok := WithoutPassword(url)
		if !ok {
			got = "-"
		}
		if got != want || strings.Contains(got, "secret") {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}
