package cli

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man [COMMAND...]",
		Short: "Write the manual page of a command",
		Long: `Write the manual page of holdfast, or of a command, for a program such as man: the text is that of
--help.`,
		Example: `  holdfast man run | man -l -
  holdfast man >/usr/local/share/man/man1/holdfast.1`,
		RunE: ours(func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			switch {
			case err != nil:
				return err
			case len(rest) > 0:
				return commandsOnly(about, rest)
			}
			about.InitDefaultHelpFlag() // to list it
			_, err = fmt.Fprint(a.stdout, manual(about))
			return err
		}),
	}
}

// manual returns the manual page of a command. Its texts have a layout of their own, which stays.
func manual(c *cobra.Command) string {
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"holdfast %s\"\n.SH NAME\n%s \\- %s\n", roff(strings.ToUpper(name)), roff(version),
		roff(name), roff(c.Short))
	part := func(title, text string) {
		if text = strings.Trim(text, "\n"); text != "" {
			fmt.Fprintf(&b, ".SH %s\n.nf\n%s\n.fi\n", title, roff(text))
		}
	}
	part("SYNOPSIS", c.UseLine())
	part("DESCRIPTION", c.Long)
	part("EXAMPLES", c.Example)
	var commands strings.Builder
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintf(&commands, "%-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
	part("COMMANDS", commands.String())
	part("FLAGS", c.LocalFlags().FlagUsages())
	part("FLAGS OF ALL COMMANDS", c.InheritedFlags().FlagUsages())
	return b.String()
}

// roff escapes what would be a command of the formatter.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
