package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/holdfast-lock/holdfast/tests/internal/modproxy"
)

// output runs a program in dir, and returns what it prints.
func output(env []string, dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, env, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// check refuses a tree that is not the version's.
func (r *release) check() error {
	if !semver.IsValid(r.version) || semver.Canonical(r.version) != r.version {
		return fmt.Errorf("%q is no version such as v0.1.0", r.version)
	}
	if strings.HasSuffix(r.version, "-test") {
		return nil
	}
	changed, err := output(nil, r.root, "git", "status", "--porcelain")
	if err == nil && changed != "" {
		err = fmt.Errorf("the tree has changes:\n%s", changed)
	}
	work, werr := os.ReadFile(filepath.Join(r.root, "go.work"))
	if werr == nil && !bytes.Contains(work, []byte("\t"+modproxy.Ours+" "+r.version+" => .\n")) {
		werr = fmt.Errorf("go.work, and so the go.mod files, ask for another version than %s", r.version)
	}
	return errors.Join(err, werr)
}

// time is that of the commit: every file of the release has it.
func (r *release) time() (time.Time, error) {
	text, err := output(nil, r.root, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}

// proxy makes the module proxy and the environment that uses it.
func (r *release) proxy() (err error) {
	dir := filepath.Join(r.work, "proxy")
	if err := modproxy.Write(r.root, dir, r.version); err != nil {
		return err
	}
	r.env, err = modproxy.Environ(dir, filepath.Join(r.work, "cache"))
	return err
}

// build installs the program for a platform, and returns its path.
func (r *release) build(goos, goarch string) (string, error) {
	dir := filepath.Join(r.work, goos+"_"+goarch)
	env := append(slices.Clip(r.env), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch, "GOPATH="+dir, "GOBIN=")
	if _, err := output(env, r.work, "go", "install", "-trimpath", modproxy.Ours+"/cmd/holdfast@"+r.version); err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "bin")
	if goos != runtime.GOOS || goarch != runtime.GOARCH {
		bin = filepath.Join(bin, goos+"_"+goarch)
	}
	if goos == "windows" {
		return filepath.Join(bin, "holdfast.exe"), nil
	}
	return filepath.Join(bin, "holdfast"), nil
}

// notices writes the licences of the modules that a program has, and of Go, into one file.
func (r *release) notices(info *buildinfo.BuildInfo) (string, error) {
	where, err := output(r.env, r.work, "go", "env", "GOMODCACHE", "GOROOT")
	if err != nil {
		return "", err
	}
	cache, goroot, _ := strings.Cut(where, "\n")
	var text strings.Builder
	add := func(name, dir string) error {
		found := false
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			upper := strings.ToUpper(e.Name())
			if e.IsDir() || !strings.HasPrefix(upper, "LICENSE") && !strings.HasPrefix(upper, "COPYING") &&
				!strings.HasPrefix(upper, "NOTICE") {
				continue
			}
			b, rerr := os.ReadFile(filepath.Join(dir, e.Name()))
			err = errors.Join(err, rerr)
			found = true
			fmt.Fprintf(&text, "==== %s: %s\n\n%s\n\n", name, e.Name(), strings.TrimSpace(string(b)))
		}
		if err == nil && !found {
			err = fmt.Errorf("%s has no licence", name)
		}
		return err
	}
	if err := add("Go "+info.GoVersion, goroot); err != nil {
		return "", err
	}
	for _, d := range info.Deps {
		if strings.HasPrefix(d.Path+"/", modproxy.Ours+"/") {
			continue
		}
		escaped, err := module.EscapePath(d.Path)
		if err == nil {
			err = add(d.Path+" "+d.Version, filepath.Join(cache, filepath.FromSlash(escaped)+"@"+d.Version))
		}
		if err != nil {
			return "", err
		}
	}
	file := filepath.Join(r.work, "notices")
	return file, os.WriteFile(file, []byte(text.String()), 0o644)
}
