package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// nfpm is the program that makes packages. Later versions need modules that not every proxy has.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0"

// distributions makes packages for Debian and Red Hat from the files of the archive.
func (r *release) distributions(goarch string, all []entry, when time.Time) error {
	stamp := when.Format(time.RFC3339)
	text := fmt.Sprintf(`name: holdfast
arch: %s
version: %q
section: utils
maintainer: holdfast <holdfast@users.noreply.github.com>
description: |
  Distributed locks for commands and Go programs.
  One command line over Redis, ZooKeeper, MySQL, PostgreSQL, SQLite and a quorum of Redis servers.
homepage: https://%s
license: Apache-2.0
mtime: %s
contents:
`, goarch, r.version, "github.com/holdfast-lock/holdfast", stamp)
	for _, e := range all {
		to := "/usr/share/doc/holdfast/" + e.name
		switch e.name {
		case "holdfast":
			to = "/usr/bin/holdfast"
		case "LICENSE":
			to = "/usr/share/doc/holdfast/copyright"
		}
		path, err := filepath.Abs(e.path)
		if err != nil {
			return err
		}
		text += fmt.Sprintf("  - src: %q\n    dst: %q\n    file_info:\n      mode: 0%o\n      mtime: %s\n", path, to, e.mode,
			stamp)
	}
	config := filepath.Join(r.work, "nfpm.yaml")
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	dir, err := filepath.Abs(r.dir)
	if err != nil {
		return err
	}
	env := append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOFLAGS=") }),
		"GOWORK=off", fmt.Sprintf("SOURCE_DATE_EPOCH=%d", when.Unix()))
	for _, kind := range []string{"deb", "rpm"} {
		if _, err := output(env, r.work, "go", "run", nfpm, "package", "--config", config, "--packager", kind, "--target",
			filepath.Join(dir, r.name("linux", goarch)+"."+kind)); err != nil {
			return err
		}
	}
	return nil
}
