package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// programs are the imports of a small program on each store.
var programs = []struct {
	name    string
	imports []string
}{
	{"memory", []string{ours, ours + "/memlock"}},
	{"Redis, go-redis", []string{ours, ours + "/redislock", ours + "/redislock/goredisconn", "github.com/redis/go-redis/v9"}},
	{"Redis, rueidis", []string{ours, ours + "/redislock", ours + "/redislock/rueidisconn"}},
	{"quorum, rueidis", []string{ours, ours + "/redislock/quorum", ours + "/redislock/rueidisconn"}},
	{"MySQL", []string{ours, ours + "/sqllock", ours + "/sqllock/mysql", "github.com/go-sql-driver/mysql"}},
	{"PostgreSQL", []string{ours, ours + "/sqllock", ours + "/sqllock/postgres", "github.com/jackc/pgx/v5/stdlib"}},
	{"SQLite", []string{ours, ours + "/sqllock/sqlite", "modernc.org/sqlite"}},
	{"ZooKeeper", []string{ours, ours + "/zklock"}},
	{"fencing in SQL", []string{ours, ours + "/fence"}},
}

// clients are the libraries that a program should resolve only if it uses them.
var clients = []string{"redis/go-redis", "redis/rueidis", "go-sql-driver/mysql", "jackc/pgx", "modernc.org/sqlite", "anishathalye/porcupine", "spf13/cobra"}

// A program resolves the client library of its store and of no other. docs/modules.md has what each
// resolves.
func TestResolved(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "docs/modules.md"))
	if err != nil {
		t.Fatal(err)
	}
	env := environment(t)
	for _, p := range programs {
		dir := t.TempDir()
		text := "package main\n\nimport (\n"
		for _, i := range p.imports {
			text += fmt.Sprintf("\t_ %q\n", i)
		}
		for file, text := range map[string]string{"go.mod": "module example\n\ngo 1.26.0\n", "main.go": text + ")\n\nfunc main() {}\n"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		run(t, env, dir, "go", "mod", "tidy")
		all := strings.Split(strings.TrimSpace(run(t, env, dir, "go", "list", "-m", "-f", "{{.Path}}", "all")), "\n")[1:]
		if row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(p.name) + ` \| \d+ \| (\d+) \| (.*) \|$`).FindSubmatch(doc); row == nil || string(row[1]) != fmt.Sprint(len(all)) {
			t.Errorf("docs/modules.md lacks, or has another figure than:\n| %s | … | %d |", p.name, len(all))
		} else {
			t.Logf("%s: %d: %s", p.name, len(all), strings.Join(all, " "))
			all := slices.DeleteFunc(all, func(m string) bool { return !isClient(m) })
			if got := strings.Join(all, ", "); got != string(row[2]) {
				t.Errorf("%s resolves the clients %q; docs/modules.md says %q", p.name, got, row[2])
			}
		}
	}
}

func isClient(mod string) bool {
	return slices.ContainsFunc(clients, func(c string) bool { return strings.Contains(mod, c) })
}
