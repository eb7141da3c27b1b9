package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker in releases.
var version string

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: ours(func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.stdout, "holdfast", versionText())
			return err
		}),
	}
}

func versionText() string {
	v := version
	if b, ok := debug.ReadBuildInfo(); ok && v == "" {
		v = b.Main.Version
	}
	if v == "" {
		v = "(devel)"
	}
	return fmt.Sprintf("%s %s %s/%s", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
