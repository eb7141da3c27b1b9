package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// showHelp writes the help of a command, with the usage first.
func showHelp(c *cobra.Command, _ []string) {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if c.Runnable() {
		fmt.Fprintf(&b, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s [command]\n", c.CommandPath())
	}
	part := func(title, text string) {
		if text = strings.TrimRight(text, " \n"); text != "" {
			fmt.Fprintf(&b, "\n%s%s\n", title, text)
		}
	}
	part("Examples:\n", c.Example)
	if c.Long != "" {
		part("", c.Long)
	} else {
		part("", c.Short)
	}
	var commands strings.Builder
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			fmt.Fprintf(&commands, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
	part("Commands:\n", commands.String())
	part("Flags:\n", c.LocalFlags().FlagUsages())
	part("Flags of all commands:\n", c.InheritedFlags().FlagUsages())
	if c.HasAvailableSubCommands() {
		part("", fmt.Sprintf("%q shows the help of a command.", c.CommandPath()+" COMMAND --help"))
	}
	_, _ = fmt.Fprint(c.OutOrStdout(), b.String()) // Main reports the error
}

// helpCommand returns the command help. Its arguments are the words of another command.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Show the help of a command",
		RunE: ours(func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			switch {
			case err != nil:
				return err
			case len(rest) > 0:
				return commandsOnly(about, rest)
			}
			about.InitDefaultHelpFlag() // to list it
			return about.Help()
		}),
	}
}
