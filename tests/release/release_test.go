package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testenv"
)

// A release has what go install makes, byte by byte, what it is made of, and checksums. At full size
// it has every platform and the packages, and is the same when it is made again.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test builds the program")
	}
	r := release{root: root, version: tested, dir: t.TempDir(), platforms: []string{runtime.GOOS + "/" + runtime.GOARCH},
		env: stranger}
	if testenv.Deep() {
		r.platforms, r.packages, r.env = strings.Split(platforms, ","), true, nil
	}
	if err := r.make(); err != nil {
		t.Fatal(err)
	}
	sums := read(t, filepath.Join(r.dir, "SHA256SUMS"))
	t.Logf("%s", sums)
	name := r.name(runtime.GOOS, runtime.GOARCH)
	want := installed(t)
	files := unpack(t, filepath.Join(r.dir, name+".tar.gz"))
	if !bytes.Equal(files["holdfast"], read(t, want)) {
		t.Error("the program is not the one that go install makes")
	}
	checkProgram(t, want)
	if !bytes.Equal(files["LICENSE"], read(t, filepath.Join(root, "LICENSE"))) {
		t.Error("the licence is another one")
	}
	info, err := buildinfo.Read(bytes.NewReader(files["holdfast"]))
	if err != nil {
		t.Fatal(err)
	}
	var parts bom
	if err := json.Unmarshal(read(t, filepath.Join(r.dir, name+".cdx.json")), &parts); err != nil {
		t.Fatal(err)
	}
	for _, d := range info.Deps {
		if !slices.ContainsFunc(parts.Components, func(c component) bool {
			return c.Name == d.Path && c.Version == d.Version && len(c.Hashes) == 1
		}) {
			t.Errorf("the bill of materials lacks %s %s", d.Path, d.Version)
		}
		if ours := strings.HasPrefix(d.Path, ours); !ours &&
			!bytes.Contains(files["THIRD-PARTY-LICENSES"], []byte("==== "+d.Path+" "+d.Version+": ")) {
			t.Errorf("the licences lack that of %s %s", d.Path, d.Version)
		}
	}
	if len(info.Deps) < 10 || parts.Metadata.Component.Version != tested {
		t.Errorf("%d modules; the program is %+v", len(info.Deps), parts.Metadata.Component)
	}
	for line := range strings.Lines(string(sums)) {
		run(t, os.Environ(), r.dir, "sh", "-c", "echo '"+strings.TrimSpace(line)+"' | sha256sum -c")
	}
	if !testenv.Deep() {
		return
	}
	if n := bytes.Count(sums, []byte("\n")); n != 6*2+2*2+1 {
		t.Errorf("%d files", n)
	}
	again := release{root: root, version: tested, dir: t.TempDir(), platforms: r.platforms, packages: true}
	if err := again.make(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(again.dir, "SHA256SUMS")); !bytes.Equal(got, sums) {
		t.Errorf("made again, the checksums are\n%s", got)
	}
	if deb := filepath.Join(r.dir, r.name("linux", "amd64")+".deb"); runtime.GOARCH == "amd64" {
		if list := run(t, os.Environ(), r.dir, "dpkg-deb", "-c", deb); !strings.Contains(list, " ./usr/bin/holdfast\n") {
			t.Errorf("the package has\n%s", list)
		}
	}
}

// An archive does not depend on when and by whom it is made.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	when := time.Unix(1_700_000_000, 0).UTC()
	var made [2]map[string][]byte
	for i := range made {
		source := filepath.Join(dir, "source")
		if err := errors.Join(os.RemoveAll(source), os.WriteFile(source, []byte("text"), 0o600+os.FileMode(i)),
			os.Chtimes(source, time.Time{}, time.Unix(int64(i), 0))); err != nil {
			t.Fatal(err)
		}
		all := []entry{{name: "program", path: source, mode: 0o755}}
		tarred, zip := filepath.Join(dir, "a.tar.gz"), filepath.Join(dir, "a.zip")
		if err := errors.Join(tarGz(tarred, all, when), zipped(zip, all, when)); err != nil {
			t.Fatal(err)
		}
		made[i] = map[string][]byte{"tar.gz": read(t, tarred), "zip": read(t, zip)}
	}
	for kind, text := range made[0] {
		if !bytes.Equal(text, made[1][kind]) {
			t.Errorf("the second %s differs", kind)
		}
	}
	if got := unpack(t, filepath.Join(dir, "a.tar.gz")); string(got["program"]) != "text" {
		t.Errorf("unpacked: %q", got)
	}
}

// A release is refused that nobody could make again.
func TestRefused(t *testing.T) {
	for version, why := range map[string]string{"1.0": "is no version", "v1": "is no version",
		"v0.77.0": "ask for another version"} {
		r := release{root: root, version: version, dir: t.TempDir()}
		if err := r.make(); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v; want %q", version, err, why)
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// unpack returns the files of an archive, which are alone in it.
func unpack(t *testing.T, file string) map[string][]byte {
	t.Helper()
	packed, err := gzip.NewReader(bytes.NewReader(read(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(packed); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}
