package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// load reads one file with a text.
func load(t *testing.T, text string) (*Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load([]string{file}, true, time.ParseDuration, func(string, []string) string { return "" })
}

// A profile of the first file hides one of the same name in the second, as a whole.
func TestFirstFileCounts(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for name, text := range map[string]string{
		"1.toml": "default-profile = 'own'\n[profile.own]\nttl = '7s'\n[profile.both]\nttl = '8s'\n",
		"2.toml": "default-profile = 'all'\n[profile.all]\nttl = '9s'\n[profile.both]\nstore = 'memory:'\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files = append(files, filepath.Join(dir, "1.toml"), filepath.Join(dir, "2.toml"), filepath.Join(dir, "none.toml"))
	c, err := Load(files, false, time.ParseDuration, func(string, []string) string { return "" })
	if err != nil || c.Default != "own" || c.From != files[0] || strings.Join(c.Names(), " ") != "all both own" {
		t.Fatalf("%+v, %v", c, err)
	}
	p, err := c.Find("both")
	if err != nil || p.TTL != 8*time.Second || p.Store != "" || p.File != files[0] {
		t.Errorf("%+v, %v", p, err)
	}
}

// The files are the user's and that of the machine, or the only one of HOLDFAST_CONFIG.
func TestPaths(t *testing.T) {
	for _, c := range []struct{ config, xdg, home, want string }{
		{"", "", "/home/u", "/home/u/.config/holdfast/config.toml " + system},
		{"", "/x", "/home/u", "/x/holdfast/config.toml " + system},
		{"", "x", "/home/u", "/home/u/.config/holdfast/config.toml " + system},
		{"", "", "", system},
		{"/own", "/x", "/home/u", "/own"},
	} {
		t.Setenv(Variable, c.config)
		t.Setenv("XDG_CONFIG_HOME", c.xdg)
		t.Setenv("HOME", c.home)
		files, must, err := Paths()
		if err != nil || strings.Join(files, " ") != c.want || must != (c.config != "") {
			t.Errorf("%+v: %s, %v, %v", c, files, must, err)
		}
	}
}

// No text makes Load panic, and no error quotes a value.
func FuzzLoad(f *testing.F) {
	const canary = "c4nary"
	for _, text := range []string{
		"", "default-profile = 'a'\n[profile.a]\nstore = 'redis://u:c4nary@h'\nttl = '1s'\nlabels = { a = 'b' }\n",
		"[profile.a]\nstore = redis://u:c4nary@h", "[profile.a]\nstore = \"redis://u:c4nary\\q@h\"", "profile = 'c4nary'",
		"[profile.a]\nttl = 'c4nary'", "[profile.a]\nlabels = { a = ['c4nary'] }", "[[profile]]\nstore = 'c4nary'",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := load(t, text)
		if err == nil {
			return
		}
		// A key may have any text. Values have it after the first equals sign of their line.
		for line := range strings.Lines(text) {
			if key, _, ok := strings.Cut(line, "="); !ok && strings.Contains(line, canary) || strings.Contains(key, canary) {
				return
			}
		}
		if strings.Contains(err.Error(), canary) && !strings.Contains(text, "{") {
			t.Errorf("%q: %v", text, err)
		}
	})
}
