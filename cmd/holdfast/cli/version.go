package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version, the commit if the program was built in a checkout, and how it was built. A version
such as (devel) or v0.0.0-… is no release.`,
		Args: noArguments,
		RunE: ours(func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.stdout, "holdfast", versionText())
			return err
		}),
	}
}

func versionText() string {
	info, _ := debug.ReadBuildInfo()
	return builtFrom(info)
}

// builtFrom says what a program was built from, and how. The first line has the version, the release
// of Go and the platform; info may be nil.
func builtFrom(info *debug.BuildInfo) string {
	version, platform := "(devel)", runtime.GOOS+"/"+runtime.GOARCH
	if info == nil {
		return fmt.Sprintf("%s %s %s", version, runtime.Version(), platform)
	}
	if info.Main.Version != "" {
		version = info.Main.Version
	}
	of := map[string]string{}
	var settings []string
	for _, s := range info.Settings {
		of[s.Key] = s.Value
		if s.Value != "" && (strings.HasPrefix(s.Key, "-") || s.Key == "CGO_ENABLED" || strings.HasPrefix(s.Key, "GO") &&
			s.Key != "GOOS" && s.Key != "GOARCH") {
			settings = append(settings, s.Key+"="+s.Value)
		}
	}
	text := fmt.Sprintf("%s %s %s", version, info.GoVersion, platform)
	if commit := of["vcs.revision"]; commit != "" {
		text += "\ncommit " + commit + " of " + of["vcs.time"]
		if of["vcs.modified"] == "true" {
			text += ", with changes"
		}
	}
	if len(settings) > 0 {
		text += "\nbuilt with " + strings.Join(settings, " ")
	}
	return text
}
