package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/internal/storeurl"
)

// helpHint ends the message about a wrong command line.
func helpHint(c *cobra.Command) string { return "; see " + c.CommandPath() + " --help" }

// noArguments refuses all arguments.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("%s is one argument too many: %s takes none%s", show(args[0]), c.CommandPath(), helpHint(c))
}

// exactly requires one argument for each of the names, such as "the name of the lock".
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s is missing: %s%s", names[len(args)], c.UseLine(), helpHint(c))
		case len(args) > len(names):
			return usagef("%s is one argument too many: %s%s", show(args[len(names)]), c.UseLine(), helpHint(c))
		}
		return nil
	}
}

// atLeastOne requires an argument, such as "a file".
func atLeastOne(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s is missing: %s%s", name, c.UseLine(), helpHint(c))
		}
		return nil
	}
}

// atMostOne refuses a second argument.
func atMostOne(c *cobra.Command, args []string) error {
	if len(args) > 1 {
		return exactly("")(c, args)
	}
	return nil
}

// commandsOnly refuses arguments of a command that only has subcommands.
func commandsOnly(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			known = append(known, sub.Name())
		}
	}
	suggestion := meant(args[0], known)
	if better := called[args[0]]; better != "" && !c.HasParent() {
		suggestion = fmt.Sprintf(" (did you mean %s?)", better)
	}
	return usagef("there is no command %s %s%s%s", c.CommandPath(), show(args[0]), suggestion, helpHint(c))
}

// called are our commands by the names that other programs give them.
var called = map[string]string{
	"lock": "run", "acquire": "run", "exec": "run", "with": "run", "flock": "run",
	"unlock": "break", "kill": "break", "steal": "break", "delete": "break", "rm": "break",
	"list": "ls", "locks": "ls", "ps": "ls", "status": "ls", "tail": "watch", "events": "watch",
	"show": "info", "get": "info", "inspect": "info", "describe": "info", "stat": "info",
	"await": "wait", "held": "info -q", "why": "info",
	"lead": "elect", "campaign": "elect", "election": "elect", "semaphore": "sem",
	"test": "verify", "torture": "verify", "migrate": "init", "setup": "init",
}

// alsoTimeout lets users write --timeout for --wait, as other programs call it.
func alsoTimeout(c *cobra.Command) {
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "timeout" {
			name = "wait"
		}
		return pflag.NormalizedName(name)
	})
}

// given returns the flags of a command line as a user would type them, each with a space in front.
func given(c *cobra.Command) string {
	var b strings.Builder
	c.Flags().Visit(func(f *pflag.Flag) {
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand
		}
		values := []string{f.Value.String()}
		if several, ok := f.Value.(interface{ GetSlice() []string }); ok {
			values = several.GetSlice()
		}
		for _, v := range values {
			b.WriteString(" " + name)
			if f.Value.Type() != "bool" {
				b.WriteString(" " + shellWord(v))
			}
		}
	})
	return b.String()
}

// shellWord quotes a word for a shell if it needs that.
func shellWord(word string) string {
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./:,@%") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// together refuses flags that exclude each other.
func together(c *cobra.Command, flags ...string) error {
	var given []string
	for _, name := range flags {
		if c.Flags().Changed(name) {
			given = append(given, flagName(c.Flags().Lookup(name)))
		}
	}
	if len(given) < 2 {
		return nil
	}
	return usagef("%s contradict each other: only one of them is allowed%s", strings.Join(given, " and "), helpHint(c))
}

// flagName returns a flag as the help lists it.
func flagName(f *pflag.Flag) string {
	if f.Shorthand != "" {
		return "-" + f.Shorthand + ", --" + f.Name
	}
	return "--" + f.Name
}

// flagError words an error of the flag library for users.
func flagError(c *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
		value   *pflag.InvalidValueError
		syntax  *pflag.InvalidSyntaxError
	)
	text := err.Error()
	switch {
	case errors.As(err, &unknown) && negative(unknown) && c.Annotations[counts] != "":
		return usagef("-%s is not a number to count from: %s", show(unknown.GetSpecifiedShortnames()), c.Annotations[counts])
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		text = "there is no flag -" + show(unknown.GetSpecifiedName())
	case errors.As(err, &unknown):
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
		name := "--" + unknown.GetSpecifiedName()
		text = "there is no flag " + show(name) + meant(name, known)
		if name == "--json" && c.Flags().Lookup("output") != nil {
			text += "; for JSON use -o json"
		}
	case errors.As(err, &missing):
		text = flagName(missing.GetFlag()) + ": the value is missing" + example(missing.GetFlag())
	case errors.As(err, &value):
		text = flagName(value.GetFlag()) + " " + show(value.GetValue()) + ": " +
			allowed(value.GetFlag(), value.GetValue(), value.Unwrap())
	case errors.As(err, &syntax):
		text = show(syntax.GetSpecifiedFlag()) + " is no flag"
	}
	return usagef("%s%s", text, helpHint(c))
}

// counts is the annotation of a command whose argument is a number. It says which are allowed.
const counts = "counts"

// negative reports whether what looked like a flag is a number below zero.
func negative(unknown *pflag.NotExistError) bool {
	_, err := strconv.Atoi(unknown.GetSpecifiedShortnames())
	return err == nil
}

// examples are values of flags, by type; "" is for types that need none.
var examples = map[string]string{
	"duration": "10s", "SECONDS": "10", "int": "4", "int64": "4", "uint64": "7", "KEY=VALUE": "ticket=OPS-12",
	"stringArray": "", "stringSlice": "", "string": "",
}

func example(f *pflag.Flag) string {
	v := examples[f.Value.Type()]
	switch f.Name {
	case "store":
		v = "redis://localhost:6379"
	case "output":
		v = f.DefValue
	}
	if v == "" {
		return ""
	}
	return fmt.Sprintf(", for example --%s %s", f.Name, v)
}

// allowed says what the value of a flag must be. The flag library could not read text as one.
func allowed(f *pflag.Flag, text string, err error) string {
	digits := text != "" && strings.Trim(text, "0123456789") == ""
	switch kind := f.Value.Type(); {
	case f.Name == "token":
		return `expected the number that "holdfast info" shows as the token`
	case (kind == "int" || kind == "int64" || kind == "uint64") && digits:
		return "the number is too large"
	case kind == "uint64":
		return "expected a whole number that is not negative" + example(f)
	case kind == "int" || kind == "int64":
		return "expected a whole number" + example(f)
	case kind == "bool":
		return fmt.Sprintf("expected --%s=true, --%s=false, or --%s alone", f.Name, f.Name, f.Name)
	}
	return err.Error()
}

// meant returns a question with the entry of known that is most like word, or "".
func meant(word string, known []string) string { return storeurl.Meant(word, known) }

// span is d without units that are zero: 24h, not 24h0m0s.
func span(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// atMost refuses a given time that is not positive, or is longer than most.
func atMost(c *cobra.Command, flag string, d, most time.Duration) error {
	if !c.Flags().Changed(flag) || d > 0 && d <= most {
		return nil
	}
	return usagef("--%s %s: it must be positive and at most %s%s", flag, span(d), span(most), helpHint(c))
}

// positive refuses given flags that are zero or less.
func positive(c *cobra.Command, flags ...string) error {
	for _, name := range flags {
		v := c.Flags().Lookup(name).Value.String()
		if c.Flags().Changed(name) && (v == "0" || strings.HasPrefix(v, "-")) {
			return usagef("--%s %s: it must be positive%s", name, v, helpHint(c))
		}
	}
	return nil
}

// notEmpty refuses flags that are given, but empty: those that name a file, a folder, an address or
// a command. In a script they come from a variable that is not set. Without them some commands
// would run with less than was asked for: serve without users, verify without the other lock.
func notEmpty(c *cobra.Command) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		name, _ := pflag.UnquoteUsage(f)
		if slices.Contains([]string{"FILE", "DIR", "ADDRESS", "COMMAND"}, name) && f.Value.String() == "" {
			err = usagef("--%s is empty: expected %s, or leave it out%s", f.Name, name, helpHint(c))
		}
	})
	return err
}

// firstOf returns the first error that is not nil.
func firstOf(errs ...error) error {
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}
