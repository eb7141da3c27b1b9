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
		Args:  cobra.NoArgs,
		RunE: ours(func(*cobra.Command, []string) error {
			v := version
			if b, ok := debug.ReadBuildInfo(); ok && v == "" {
				v = b.Main.Version
			}
			if v == "" {
				v = "(devel)"
			}
			_, err := fmt.Fprintf(a.stdout, "holdfast %s %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		}),
	}
}
