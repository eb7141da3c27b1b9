//go:build unix

package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// put writes a file in the folder of the test, which only this user may read.
func (b *bench) put(name, text string) (path string) {
	b.Helper()
	path = filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return path
}

// with returns a bench with more variables.
func (b *bench) with(env ...string) *bench {
	return &bench{b.T, b.dir, append(b.env[:len(b.env):len(b.env)], env...)}
}

// canary is a password that no text has by chance.
const canary = "c4nary-of-these-tests"

// lockerRedis starts a Redis server with the user locker.
func lockerRedis(t *testing.T) *testenv.RedisServer {
	return testenv.RedisACL(t, []string{"user locker on >" + canary + " ~* &* +@all"})
}

// A profile names the store, the file of its password, the TTL and labels. The nested command uses
// the same profile.
func TestProfiles(t *testing.T) {
	b := newBench(t)
	r := lockerRedis(t)
	b.put("password", canary+"\r\n")
	config := ".config/holdfast/config.toml"
	b.put(config, `default-profile = "file"
[profile.file]
store = "sqlite:`+b.dir+`/profile.db"
[profile.prod]
store = "redis://locker@`+r.Addr+`"
password-file = "~/password"
ttl = "40s"
labels = { team = "payments", tier = "1" }
[profile.slow]
ttl = "1m"
`)
	out, _ := b.with("HOLDFAST_PROFILE=prod").want(0, "run", "--label", "tier=2", "a", "--", "sh", "-c",
		"$H info -o json a; $H run -n b -- $H run -n c -- true && echo nested; $H config; env")
	for _, want := range []string{`"team": "payments"`, `"tier": "2"`, "nested\n", "40s"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
	if strings.Contains(out, canary) {
		t.Errorf("the command sees the password: %s", out)
	}
	b.want(0, "--profile", "prod", "run", "a", "--", "true")
	for _, c := range []struct {
		env, args string
		want      []string
	}{
		{"", "config", []string{"store     sqlite:" + b.dir + "/profile.db  profile file in " + b.dir + "/" + config,
			"profile   file", "default-profile in ", "ttl       15s", "password  none"}},
		{"HOLDFAST_PROFILE=prod", "config", []string{"store       redis://locker@" + r.Addr + "  ", "HOLDFAST_PROFILE",
			"in the file " + b.dir + "/password", "40s", "label team  payments"}},
		{"HOLDFAST_PROFILE=prod", "config --ttl 20", []string{"ttl         20s", "--ttl"}},
		{"HOLDFAST_PROFILE=prod", "config --store memory:", []string{"memory:", "--store", "password    none", "40s"}},
		{"HOLDFAST_URL=memory:", "config --profile prod", []string{"redis://locker@", "--profile"}},
		{"HOLDFAST_URL=memory:", "config", []string{"memory:", "HOLDFAST_URL"}},
		{"HOLDFAST_URL=redis://u:" + canary + "@h", "config --profile slow", []string{"redis://u@h", "***", "1m"}},
		{"HOLDFAST_PASSWORD_FILE=" + b.dir + "/password", "config --profile prod", []string{"HOLDFAST_PASSWORD_FILE"}},
		{"CREDENTIALS_DIRECTORY=" + b.dir, "config --profile prod", []string{"profile prod in"}}, // it has no such file
	} {
		out, _ := b.with(c.env).want(0, strings.Fields(c.args)...)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s holdfast %s: %q is not in\n%s", c.env, c.args, want, out)
			}
		}
		if strings.Contains(out, canary) {
			t.Error(out)
		}
	}
	if out, _ := b.want(0, "config", "path"); out != b.dir+"/"+config+"\n" {
		t.Error(out)
	}
	var j struct {
		Settings []struct{ Name, Value, Source string }
	}
	out, _ = b.want(0, "config", "-o", "json", "--profile", "prod")
	if err := json.Unmarshal([]byte(out), &j); err != nil || len(j.Settings) != 6 || j.Settings[0].Name != "store" {
		t.Errorf("%v: %s", err, out)
	}
}

// A profile that is wrong is refused with the reason, and without what it says.
func TestProfilesRefused(t *testing.T) {
	b := newBench(t)
	const file = ".config/holdfast/config.toml"
	for text, want := range map[string]string{
		"[profile.a]\ntll = '1s'":                               `profile "a": the key "tll" is unknown (did you mean ttl?); allowed are store, `,
		"defualt-profile = 'a'":                                 `the key "defualt-profile" is unknown (did you mean default-profile?)`,
		"[a]\nstore = 'x'":                                      `the key "a" is unknown`,
		"[profile.a]\nstore = redis://u:" + canary + "@h":       "line 2, column ",
		"[profile.a]\nstore = 5":                                "store: it must be a text in quotes",
		"[profile.a]\nttl = 'soon " + canary + "'":              `profile "a": ttl: expected a time`,
		"default-profile = 'a'\n[profile.a]\nttl = '1ms'":       "--ttl 1ms: allowed are",
		"[profile.a]\npassword-file = '/x'":                     "store is missing",
		"[profile.a]\nstore = 'redis://h'\npassword-file = 'x'": "the path must be absolute, or begin with ~/",
		"[profile.a]\nlabels = 'x'":                             "labels is not a table",
		"[profile]\na = 'x'":                                    `profile "a": it is not a table`,
		"default-profile = 'b'\n[profile.a]\n[profile.bb]":      `there is no profile "b" (did you mean bb?); there are a, bb`,
		"profile = 'x'":                                         "profile is not a table",
		"[profile.a]\n[profile.a]":                              "line 2, column 2: it is not valid TOML (it has been defined before)",
		"[profile.a]\nttl = \"1s\"\nttl = \"2s\"":               "line 3, column 1: it is not valid TOML (it has been defined before)",
		"[profile.a]\nttl = 1s":                                 "it is not valid TOML (texts need quotes)",
		"\x00":                                                  "it is not valid TOML",
		"default-profile = 'a'\n[profile.a]\nstore = 'nope://u:" + canary + "@h'": "profile a in " + b.dir + "/" + file +
			": invalid store URL",
	} {
		b.put(file, text)
		_, stderr := b.want(78, "ls")
		if !strings.Contains(stderr, want) || !strings.Contains(stderr, file) || strings.Contains(stderr, canary) {
			t.Errorf("%q: %q, want %q", text, stderr, want)
		}
		b.want(0, "help", "run")
		b.want(0, "version")
		b.want(0, "config", "path")
	}
	path := b.put(file, "[profile.a]\nstore = 'redis://u:"+canary+"@127.0.0.1:1'\n")
	b.want(69, "ls", "--profile", "a")
	for mode, want := range map[os.FileMode]string{
		0o644: "every user may read it (mode 0644); allowed are modes such as 0600, 0400 and 0440; use password-file",
		0o620: "other users may write it (mode 0620)", 0o602: "other users may write it",
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, stderr := b.want(78, "ls"); !strings.Contains(stderr, want) || strings.Contains(stderr, canary) {
			t.Errorf("%o: %q", mode, stderr)
		}
	}
	b.put(file, "[profile.a]\nstore = 'memory:'\n")
	if err := os.Chmod(path, 0o644); err != nil { // it has no password
		t.Fatal(err)
	}
	b.want(0, "ls", "--profile", "a")
	if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, stderr := b.want(78, "ls"); !strings.Contains(stderr, "its folder: other users may write it") {
		t.Error(stderr)
	}
	_, stderr := b.with("HOLDFAST_CONFIG="+b.dir+"/none.toml").want(78, "ls")
	if !strings.Contains(stderr, "no such file") {
		t.Error(stderr)
	}
	b.with("HOLDFAST_CONFIG=none.toml").want(78, "ls")
	own := b.put("own.toml", "[profile.own]\nstore = 'memory:'\n")
	b.with("HOLDFAST_CONFIG="+own).want(0, "ls", "--profile", "own")
	for _, home := range []string{"", "/dev/null", "/no/such/folder"} { // no home, no file
		b.with("HOME="+home, "HOLDFAST_URL=memory:").want(0, "ls")
	}
}

// The password comes from a file that the environment or systemd names, and the nested command has
// the same file.
func TestPasswordFile(t *testing.T) {
	b := newBench(t)
	r := lockerRedis(t)
	file, url := b.put("password", canary+"\n"), "HOLDFAST_URL=redis://locker@"+r.Addr
	b.put("credentials/holdfast-password", canary)
	for _, env := range [][]string{
		{url, "HOLDFAST_PASSWORD_FILE=" + file}, {url, "CREDENTIALS_DIRECTORY=" + b.dir + "/credentials"},
		{url + "?password-file=" + file},
	} {
		out, stderr := b.with(env...).want(0, "run", "a", "--", "sh", "-c",
			"$H run -n b -- true && env; $H config; $H doctor; true")
		if !strings.Contains(out, "HOLDFAST_LOCK=a") || strings.Contains(out+stderr, canary) {
			t.Errorf("%s: %s%s", env, out, stderr)
		}
	}
	for text, want := range map[string]string{"": "it is empty", canary + "\n\n": "it has more than one line"} {
		b.put("password", text)
		for _, args := range [][]string{{"ls"}, {"config"}} {
			_, stderr := b.with(url, "HOLDFAST_PASSWORD_FILE="+file).want(78, args...)
			if !strings.Contains(stderr, file+": "+want) || strings.Contains(stderr, canary) {
				t.Error(stderr)
			}
		}
	}
}
