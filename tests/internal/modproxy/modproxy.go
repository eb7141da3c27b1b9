// Package modproxy makes a module proxy of this repository's tree, for go commands that shall see the
// modules as they are after a release.
package modproxy

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// Ours is the path of the root module, and the beginning of the others'.
const Ours = "github.com/holdfast-lock/holdfast"

// Write writes the files of a proxy for every module of the repository at root, as the version. The
// modules have the files that git tracks or would track, and their requirements among them become
// the version.
func Write(root, dir, version string) error {
	files, err := Tracked(root)
	if err != nil {
		return err
	}
	mods := map[string]string{} // folder to module path
	for _, f := range files {
		if path.Base(f) == "go.mod" {
			mods[path.Dir(f)] = path.Join(Ours, path.Dir(f))
		}
	}
	for folder, modpath := range mods {
		if err := writeModule(root, dir, folder, module.Version{Path: modpath, Version: version},
			within(files, folder, mods)); err != nil {
			return fmt.Errorf("%s: %w", modpath, err)
		}
	}
	return nil
}

// Tracked returns the files that git tracks or would track.
func Tracked(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	files := strings.Split(strings.Trim(string(out), "\x00"), "\x00")
	// A file that is deleted and not committed is listed, too.
	return slices.DeleteFunc(files, func(f string) bool {
		info, err := os.Lstat(filepath.Join(root, f))
		return err != nil || !info.Mode().IsRegular()
	}), nil
}

// within returns the files of the module in folder, without those of modules below it.
func within(files []string, folder string, mods map[string]string) (own []string) {
	for _, f := range files {
		d := path.Dir(f)
		for mods[d] == "" {
			d = path.Dir(d)
		}
		if d == folder {
			own = append(own, f)
		}
	}
	return own
}

// source is a file of a module.
type source struct {
	name string // in the module
	path string // on disk
	text []byte // in its place, if not nil
}

func (s source) Path() string { return s.name }

func (s source) Lstat() (os.FileInfo, error) {
	info, err := os.Lstat(s.path)
	if err == nil && s.text != nil {
		info = sized{info, int64(len(s.text))}
	}
	return info, err
}

func (s source) Open() (io.ReadCloser, error) {
	if s.text != nil {
		return io.NopCloser(bytes.NewReader(s.text)), nil
	}
	return os.Open(s.path)
}

// sized is a file's information with another size.
type sized struct {
	os.FileInfo
	size int64
}

func (s sized) Size() int64 { return s.size }

func writeModule(root, dir, folder string, v module.Version, files []string) error {
	var all []zip.File
	var mod []byte
	licensed := false
	for _, f := range files {
		s := source{name: strings.TrimPrefix(f, folder+"/"), path: filepath.Join(root, f)}
		switch s.name {
		case "go.mod":
			text, err := released(s.path, v.Version)
			if err != nil {
				return err
			}
			mod, s.text = text, text
		case "LICENSE":
			licensed = true
		}
		all = append(all, s)
	}
	if !licensed { // as the go command does it
		all = append(all, source{name: "LICENSE", path: filepath.Join(root, "LICENSE")})
	}
	at := filepath.Join(dir, filepath.FromSlash(v.Path), "@v") // no path has capitals
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	name := filepath.Join(at, v.Version)
	for file, text := range map[string]string{
		name + ".mod":             string(mod),
		name + ".info":            fmt.Sprintf("{\"Version\":%q,\"Time\":\"2026-01-01T00:00:00Z\"}\n", v.Version),
		filepath.Join(at, "list"): v.Version + "\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	w, err := os.Create(name + ".zip")
	if err != nil {
		return err
	}
	if err := zip.Create(w, v, all); err != nil {
		w.Close()
		return err
	}
	return w.Close()
}

// released returns the text of a go.mod whose requirements of this repository's modules have the
// version.
func released(file, version string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	f, err := modfile.Parse(file, text, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range f.Require {
		if r.Mod.Path == Ours || strings.HasPrefix(r.Mod.Path, Ours+"/") {
			if err := f.AddRequire(r.Mod.Path, version); err != nil {
				return nil, err
			}
		}
	}
	return f.Format()
}

// Environ returns the environment of somebody who has no copy of the repository: its modules come
// from the proxy in dir, and others from the module cache if they are there. What is downloaded goes
// to the folder cache, since the version of our modules may be no released one.
func Environ(dir, cache string) ([]string, error) {
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY", "GONOSUMDB").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	was := strings.Split(string(out), "\n")
	return append(os.Environ(), "GOMODCACHE="+cache, "GOWORK=off", "GOFLAGS=-modcacherw",
		"GONOSUMDB="+strings.Trim(was[2]+","+Ours+","+Ours+"/*", ","),
		"GOPROXY=file://"+filepath.ToSlash(dir)+",file://"+filepath.ToSlash(was[0])+"/cache/download,"+was[1]), nil
}
