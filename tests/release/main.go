// Command release makes the files of a release in a folder: an archive of the program for each
// platform, packages for Debian and Red Hat, lists of what the programs are made of, a Containerfile
// for an image, and checksums.
//
//	release [-root ROOT] [-platforms OS/ARCH,…] [-packages=false] VERSION DIR
//
// It installs the program from a module proxy that it makes of the tree, as go install does after
// the release. So anybody gets the same bytes with CGO_ENABLED=0 go install -trimpath and the same
// release of Go. The tree must be committed and ask for VERSION, unless VERSION ends in -test.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

func main() {
	r := release{}
	flag.StringVar(&r.root, "root", ".", "the root of the repository")
	flag.BoolVar(&r.packages, "packages", true, "make packages for Debian and Red Hat")
	list := flag.String("platforms", platforms, "the platforms")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: release [-root ROOT] [-platforms OS/ARCH,…] [-packages=false] VERSION DIR")
		os.Exit(2)
	}
	r.version, r.dir, r.platforms = flag.Arg(0), flag.Arg(1), strings.Split(*list, ",")
	if err := r.make(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is what to make.
type release struct {
	root, version, dir string
	platforms          []string
	packages           bool

	env  []string // of the go command; nil: with a proxy made for this
	work string   // a folder for what is not released
}

// make makes the files.
func (r *release) make() (err error) {
	if err := r.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	if left, err := os.ReadDir(r.dir); err != nil || len(left) > 0 {
		return errors.Join(fmt.Errorf("%s is not empty", r.dir), err)
	}
	if r.work, err = os.MkdirTemp("", "release"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	when, err := r.time()
	if err != nil {
		return err
	}
	if r.env == nil {
		if err := r.proxy(); err != nil {
			return err
		}
	}
	for _, platform := range r.platforms {
		goos, goarch, _ := strings.Cut(platform, "/")
		program, err := r.build(goos, goarch)
		if err != nil {
			return err
		}
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		notices, err := r.notices(info)
		if err != nil {
			return err
		}
		all := []entry{{name: filepath.Base(program), path: program, mode: 0o755},
			{name: "THIRD-PARTY-LICENSES", path: notices, mode: 0o644}}
		for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
			all = append(all, entry{name: name, path: filepath.Join(r.root, name), mode: 0o644})
		}
		name := r.name(goos, goarch)
		pack, ending := tarGz, ".tar.gz"
		if goos == "windows" {
			pack, ending = zipped, ".zip"
		}
		if err := pack(filepath.Join(r.dir, name+ending), all, when); err != nil {
			return err
		}
		if err := writeBOM(filepath.Join(r.dir, name+".cdx.json"), r.version, info); err != nil {
			return err
		}
		if r.packages && goos == "linux" {
			if err := r.distributions(goarch, all, when); err != nil {
				return err
			}
		}
	}
	text := fmt.Sprintf(containerfile, strings.TrimPrefix(r.version, "v"))
	if err := os.WriteFile(filepath.Join(r.dir, "Containerfile"), []byte(text), 0o644); err != nil {
		return err
	}
	return checksums(r.dir)
}

// name is the beginning of the names of a platform's files.
func (r *release) name(goos, goarch string) string {
	return "holdfast_" + strings.TrimPrefix(r.version, "v") + "_" + goos + "_" + goarch
}

// containerfile builds an image that has the program and nothing else, for "holdfast" itself and for
// COPY --from.
const containerfile = `# podman build --build-arg TARGETARCH=amd64 -t holdfast .
# The image has no roots for TLS and no other programs: mount a file of roots and name it in the URL
# (?ca=), or copy the program: COPY --from=holdfast /holdfast /usr/local/bin/
FROM scratch
ARG TARGETARCH
ADD holdfast_%s_linux_${TARGETARCH}.tar.gz /
ENTRYPOINT ["/holdfast"]
`

// checksums writes SHA256SUMS, for sha256sum -c.
func checksums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(b), e.Name()))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
