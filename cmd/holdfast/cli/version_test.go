package cli

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestBuiltFrom: the version is that of the build; a test of tests/modproxy looks at a real one.
func TestBuiltFrom(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	setting := func(pairs ...string) (all []debug.BuildSetting) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return all
	}
	for _, c := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{nil, "(devel) " + runtime.Version() + " " + platform},
		{&debug.BuildInfo{GoVersion: "go1.30"}, "(devel) go1.30 " + platform},
		{&debug.BuildInfo{GoVersion: "go1.30", Main: debug.Module{Version: "v1.2.3"},
			Settings: setting("-compiler", "gc", "-trimpath", "true",
				"-ldflags", "", "CGO_ENABLED", "0", "GOOS", "linux", "GOARCH", "amd64", "GOAMD64", "v1")},
			"v1.2.3 go1.30 " + platform + "\nbuilt with -compiler=gc -trimpath=true CGO_ENABLED=0 GOAMD64=v1"},
		{&debug.BuildInfo{GoVersion: "go1.30", Main: debug.Module{Version: "v1.2.4-0.20260102030405-0123456789ab+dirty"},
			Settings: setting("vcs", "git",
				"vcs.revision", "0123456789abcdef", "vcs.time", "2026-01-02T03:04:05Z", "vcs.modified", "true")},
			"v1.2.4-0.20260102030405-0123456789ab+dirty go1.30 " + platform +
				"\ncommit 0123456789abcdef of 2026-01-02T03:04:05Z, with changes"},
	} {
		if got := builtFrom(c.info); got != c.want {
			t.Errorf("says %q; want %q", got, c.want)
		}
	}
}
