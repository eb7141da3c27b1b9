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
	{"Redis, go-redis", []string{ours, ours + "/redislock", ours + "/redislock/goredisconn",
		"github.com/redis/go-redis/v9"}},
	{"Redis, rueidis", []string{ours, ours + "/redislock", ours + "/redislock/rueidisconn"}},
	{"quorum, rueidis", []string{ours, ours + "/redislock/quorum", ours + "/redislock/rueidisconn"}},
	{"MySQL", []string{ours, ours + "/sqllock", ours + "/sqllock/mysql", "github.com/go-sql-driver/mysql"}},
	{"PostgreSQL", []string{ours, ours + "/sqllock", ours + "/sqllock/postgres", "github.com/jackc/pgx/v5/stdlib"}},
	{"SQLite", []string{ours, ours + "/sqllock/sqlite", "modernc.org/sqlite"}},
	{"ZooKeeper", []string{ours, ours + "/zklock"}},
	{"fencing in SQL", []string{ours, ours + "/fence"}},
	{"memory, Prometheus", []string{ours, ours + "/memlock", ours + "/prometheus"}},
	{"memory, OpenTelemetry", []string{ours, ours + "/memlock", ours + "/otel"}},
}

// clients are the libraries that a program should resolve only if it uses them.
var clients = []string{"redis/go-redis", "redis/rueidis", "go-sql-driver/mysql", "jackc/pgx", "modernc.org/sqlite",
	"anishathalye/porcupine", "spf13/cobra", "prometheus/client_golang", "opentelemetry.io/otel"}

// A program resolves the client library of its store and of no other. docs/modules.md has what each
// resolves.
func TestResolved(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test unpacks all modules")
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs/modules.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		dir := t.TempDir()
		text := "package main\n\nimport (\n"
		for _, i := range p.imports {
			text += fmt.Sprintf("\t_ %q\n", i)
		}
		for file, text := range map[string]string{"go.mod": "module example\n\ngo 1.26.0\n",
			"main.go": text + ")\n\nfunc main() {}\n"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		run(t, stranger, dir, "go", "mod", "tidy")
		all := strings.Split(strings.TrimSpace(run(t, stranger, dir, "go", "list", "-m", "-f", "{{.Path}}", "all")), "\n")[1:]
		used := slices.DeleteFunc(slices.Clone(all), func(m string) bool { return !isClient(m) })
		row := fmt.Sprintf("%d | %s |", len(all), strings.Join(used, ", "))
		if !regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(p.name) + ` \| (\d+|–) \| ` + regexp.QuoteMeta(row) + `$`).
			Match(doc) {
			t.Errorf("docs/modules.md lacks:\n| %s | … | %s", p.name, row)
		}
		t.Logf("%s: %d: %s", p.name, len(all), strings.Join(all, " "))
	}
}

func isClient(mod string) bool {
	return slices.ContainsFunc(clients, func(c string) bool { return strings.Contains(mod, c) })
}
