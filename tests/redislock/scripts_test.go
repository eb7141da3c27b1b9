package redislock_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/hook"
	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// TestScriptsCompile lets a server compile every file by itself, and every script.
func TestScriptsCompile(t *testing.T) {
	t.Parallel()
	client := rawClient(t, testenv.Existing(t))
	compile := func(what, text string) {
		t.Helper()
		if err := client.Do(within(t, soon), client.B().ScriptLoad().Script(text).Build()).Error(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	files, err := filepath.Glob("../../redislock/lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		compile(name, string(text))
	}
	for kind, all := range hook.RedisScripts() {
		for name, text := range all {
			compile(kind+": "+name, text)
			for line := range strings.Lines(text) {
				if strings.Contains(line, "'TIME'") && !strings.Contains(line, "redis.call('TIME')") {
					t.Errorf("%s: %s: tests cannot replace the clock in %q", kind, name, line)
				}
			}
		}
	}
}
