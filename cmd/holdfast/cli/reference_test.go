package cli

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write docs/cli.md")

const aboutReference = `# Command reference

The text that ` + "`--help`" + ` of each command shows. This command writes the page:

    go test -C cmd/holdfast ./cli -run TestReference -update

`

// reference returns the page: what --help of each command shows. The flags of all commands are
// listed once, with the command holdfast.
func reference(t *testing.T) string {
	t.Helper()
	var links, page strings.Builder
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		code, help, errs := try(append(path, "--help")...)
		if code != 0 || help == "" || strings.Contains(help, "```") {
			t.Fatalf("%s --help: exit code %d: %s%s", c.CommandPath(), code, help, errs)
		}
		if len(path) > 0 {
			help, _, _ = strings.Cut(help, "\nFlags of all commands:")
		}
		fmt.Fprintf(&links, "[%s](#%s) ·\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"))
		fmt.Fprintf(&page, "\n## %s\n\n%s.\n\n```text\n%s\n```\n", c.CommandPath(), c.Short, strings.TrimSpace(help))
		if c.Name() == "completion" { // its commands, one for each shell, have texts of the library
			return
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				visit(sub)
			}
		}
	}
	visit((&app{}).root())
	return aboutReference + strings.TrimSuffix(links.String(), " ·\n") + "\n" + page.String()
}

// docs/cli.md has the texts of --help.
func TestReference(t *testing.T) {
	const path = "../../../docs/cli.md"
	want := reference(t)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("docs/cli.md is not what --help shows now (its first lines name the command that writes it): %v", err)
	}
}
