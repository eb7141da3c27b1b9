// Package archtest checks the structure of the repository: which package may import which, how long
// a file may be, and what must be documented. Each rule has its reason.
package archtest

import (
	"bytes"
	"errors"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	module = "github.com/holdfast-lock/holdfast"
	root   = "../.."
)

// layers lists what a directory's non-test files may import besides the standard library, as
// prefixes. The first entry that matches a directory counts. Every package may import backoff.
var layers = []struct {
	dir     string
	imports []string
	why     string
}{
	{".", []string{module + "/driver", module + "/internal/asleep", module + "/internal/timed"},
		"the root knows the contract and no store, and links no other module"},
	{"driver", nil, "the contract needs only the standard library, so that anybody can write a store"},
	{"internal/rule", []string{module + "/driver"}, "the rules are pure"},
	{"internal/waiters", nil, "requests and channels, without the contract's types"},
	{"internal/watchers", nil, "names and functions, without the contract's types"},
	{"observe", []string{module}, "it needs what a client tells, and only the standard library"},
	{"otel", []string{module, "go.opentelemetry.io/otel"}, "it needs what a client tells, and the API of OpenTelemetry"},
	{"prometheus", []string{module, "github.com/prometheus/client_golang"},
		"it needs what a client tells, and the library of Prometheus"},
	{"memlock", []string{module + "/driver", module + "/internal/rule", module + "/internal/waiters",
		module + "/internal/watchers"},
		"a store knows the contract, never the root"},
	{"redislock/rueidisconn", []string{module + "/driver", module + "/redislock", module + "/redislock/redisson",
		module + "/internal/storeurl", "github.com/redis/rueidis"},
		"an adapter connects one client library to the store"},
	{"redislock/goredisconn", []string{module + "/driver", module + "/redislock", "github.com/redis/go-redis/v9"},
		"an adapter connects one client library to the store"},
	{"redislock/internal/listening", []string{module + "/driver", module + "/redislock"}, "adapters share it"},
	{"redislock/internal/asking", []string{module + "/driver", module + "/redislock"}, "adapters share it"},
	{"redislock/quorum", []string{module + "/driver", module + "/redislock", module + "/internal/waiters",
		module + "/internal/doctor", module + "/internal/hook"},
		"a quorum consists of Redis servers, with any client library"},
	{"redislock/redisson", []string{module + "/driver", module + "/redislock"},
		"a format adds another library's keys to the store"},
	{"redislock", []string{module + "/driver", module + "/internal/rule", module + "/internal/waiters",
		module + "/internal/watchers", module + "/internal/doctor", module + "/internal/hook"},
		"the store uses an interface, so that nobody links an unused Redis client"},
	{"sqllock/mysql", []string{module + "/driver", module + "/sqllock", module + "/internal/doctor",
		"github.com/go-sql-driver/mysql"}, "a dialect connects one SQL driver to the store"},
	{"sqllock/postgres", []string{module + "/driver", module + "/sqllock", module + "/internal/doctor",
		"github.com/jackc/pgx/v5"}, "a dialect connects one SQL driver to the store"},
	{"sqllock/internal/sqltest", []string{module, "pgregory.net/rapid"}, "test helpers"},
	{"sqllock/internal/host", []string{"golang.org/x/sys"}, "what a system has, whatever the store"},
	{"sqllock/internal/samehost", []string{module + "/sqllock/internal/host"}, "messages, whatever they are about"},
	{"sqllock/sqlite", []string{module + "/driver", module + "/internal/rule", module + "/internal/waiters",
		module + "/internal/watchers", module + "/internal/doctor", module + "/sqllock/internal/host",
		"golang.org/x/sys"},
		"the application chooses the SQLite driver"},
	{"sqllock", []string{module + "/driver", module + "/internal/rule", module + "/internal/waiters",
		module + "/sqllock/internal/samehost",
		module + "/internal/watchers", module + "/internal/doctor", module + "/internal/hook"},
		"the application chooses the SQL driver"},
	{"fence/fencehttp", []string{module, module + "/fence"}, "the client's token, and the resource's largest one"},
	{"fence", []string{module + "/driver"}, "the application owns the transaction and chooses the SQL driver"},
	{"httpapi", []string{module}, "sessions of programs in other languages, through the root and no store"},
	{"console", []string{module}, "pages about any store, through the root"},
	{"open", []string{module, "github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5", "modernc.org/sqlite"},
		"it opens every store"},
	{"cmd/holdfast/internal/history", []string{module + "/driver", module + "/cmd/holdfast/internal/timeline",
		"github.com/anishathalye/porcupine"}, "the judge knows no store and no client"},
	{"cmd/holdfast/internal/timeline", nil, "a part of a page, about any lock"},
	{"cmd/holdfast/internal/browser", nil, "tests show it pages, whatever they are about"},
	{"cmd/holdfast/internal/web", nil, "it stands before handlers, whatever they serve"},
	{"cmd/holdfast/child", []string{module + "/cmd/holdfast/child/guard", "golang.org/x/sys"},
		"it runs a command, and knows no lock"},
	{"cmd/holdfast/profile", []string{module + "/open", module + "/internal/storeurl", "github.com/pelletier/go-toml/v2"},
		"it reads files, and knows no command line"},
	{"cmd/holdfast/keeper", []string{"golang.org/x/sys"}, "it connects processes, and knows no lock"},
	{"cmd/holdfast/lab", []string{module, "github.com/go-sql-driver/mysql", "golang.org/x/sys"},
		"it runs wrong algorithms and holdfast on a real store"},
	{"cmd/holdfast/verify", []string{module, module + "/driver", module + "/open", module + "/internal/relay",
		module + "/internal/servers", module + "/cmd/holdfast/internal/history", "golang.org/x/sys"},
		"it tests a deployment through the root, and knows no command line"},
	{"cmd/holdfast/bench", []string{module, module + "/driver", module + "/open",
		module + "/cmd/holdfast/internal/timeline"},
		"it measures a deployment through the root, and knows no command line"},
	{"cmd/holdfast/mutant", []string{module + "/cmd/holdfast/internal/history"}, "it edits sources as text"},
	{"cmd/holdfast/cli", []string{module, "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sys"},
		"commands and flags"},
	{"cmd/holdfast", []string{module + "/cmd/holdfast/cli"}, "the program is its commands"},
	{"bench", []string{"github.com", "cirello.io", "golang.org/x/sys", "modernc.org"},
		"it measures holdfast beside every peer"},
	{"interop/internal/judge", nil, "it reads what contenders noted, whatever the lock"},
	{"interop/internal/remote", []string{module}, "it drives programs, whatever their library; it knows the error of a lost lock"},
	{"examples", []string{module, "github.com/go-sql-driver/mysql", "modernc.org/sqlite"},
		"a shop has a database, and takes its locks from any store"},
	{"internal/asleep", nil, "a clock"},
	{"internal/timed", []string{module + "/driver"}, "it measures the contract's methods"},
	{"internal/plain", nil, "text, whatever it is about"},
	{"internal/signs", []string{module}, "it judges what the root reads at a store"},
	{"internal/backoff", nil, "every package may import it"},
	{"internal/histogram", nil, "durations, whatever they are of"},
	{"internal/storeurl", nil, "text, without the contract's types; a URL is parsed the same for every store"},
	{"internal/doctor", []string{module + "/driver"}, "findings of the contract, and no store"},
	{"internal/zk", []string{module + "/internal/asleep"},
		"the client keeps promises that no other client makes, so none is linked"},
	{"zklock", []string{module + "/driver", module + "/internal/waiters", module + "/internal/watchers",
		module + "/internal/zk", module + "/internal/doctor"}, "the store uses the client of this repository"},
	{"drivertest", []string{module, "testing"}, "the suite may use the root and the contract"},
	{"internal/hook", nil, "every package that is tested from another module may import it"},
	{"tests", []string{module + "/tests/internal/modproxy", "golang.org/x/mod"},
		"what a release has comes from the tree, read as files"},
	{"internal/modeltest", []string{module, "pgregory.net/rapid"}, "rapid draws and shrinks histories"},
	{"internal", []string{module, "golang.org/x/sys"}, "test helpers"},
}

type file struct {
	path string // relative to the module
	pkg  string // directory
	src  []byte
	ast  *ast.File
	fset *token.FileSet
}

// files parses every Go file of the repository, including the other modules.
func files(t *testing.T) []file {
	t.Helper()
	var all []file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if name := d.Name(); rel != "." && (strings.HasPrefix(name, ".") || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, rel, src, parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, file{filepath.ToSlash(rel), filepath.ToSlash(filepath.Dir(rel)), src, f, fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Fatalf("only %d files found: the walk is broken", len(all))
	}
	return all
}

func (f file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

func TestImports(t *testing.T) {
	for _, f := range files(t) {
		if f.test() {
			continue
		}
		i := slices.IndexFunc(layers, func(l struct {
			dir     string
			imports []string
			why     string
		}) bool {
			return f.pkg == l.dir || l.dir != "." && strings.HasPrefix(f.pkg, l.dir+"/")
		})
		if i < 0 {
			t.Errorf("%s: the directory has no entry in the layers of this test", f.path)
			continue
		}
		for _, imp := range f.ast.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
				continue // standard library
			}
			ok := slices.ContainsFunc(layers[i].imports, func(p string) bool {
				return path == p || strings.HasPrefix(path, p+"/")
			})
			if !ok && path != module+"/internal/backoff" {
				t.Errorf("%s imports %s: %s", f.path, path, layers[i].why)
			}
		}
	}
}

// A file must be readable in one sitting.
func TestFileLength(t *testing.T) {
	for _, f := range files(t) {
		if n := bytes.Count(f.src, []byte("\n")); n > 400 {
			t.Errorf("%s has %d lines; split it at 400", f.path, n)
		}
	}
}

// A package must fit into the head. These have more files than that, for the reason given.
var large = map[string]string{
	".":                "a file for each primitive and each duty of a client",
	"bench":            "a file for each peer and each scenario",
	"cmd/holdfast/cli": "a file for each command",
	"cmd/holdfast/lab": "a file for each store and each family of rows",
	"drivertest":       "a file for each topic of the contract",
	"redislock":        "a file for each kind of request, and for each part of the doctor",
}

func TestPackageSize(t *testing.T) {
	count := map[string]int{}
	for _, f := range files(t) {
		if !f.test() {
			count[f.pkg]++
		}
	}
	for pkg, n := range count {
		if n > 30 && large[pkg] == "" {
			t.Errorf("%s has %d files; split it at 30", pkg, n)
		}
	}
}

// Lines fit into a window. Only a text that nobody wants to see in pieces may be longer.
func TestLineLength(t *testing.T) {
	const most, text = 120, 60
	for _, f := range files(t) {
		long := map[int]bool{} // lines with a long text
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && len(lit.Value) > text {
				for line := f.fset.Position(lit.Pos()).Line; line <= f.fset.Position(lit.End()).Line; line++ {
					long[line] = true
				}
			}
			return true
		})
		for i, line := range bytes.Split(f.src, []byte("\n")) {
			if n := utf8.RuneCount(line); n > most && !long[i+1] {
				t.Errorf("%s:%d has %d columns; at most %d", f.path, i+1, n, most)
			}
		}
	}
}

// memlock is the answer to "what does a store do?", so it must stay short.
func TestReferenceIsShort(t *testing.T) {
	n := 0
	for _, f := range files(t) {
		if f.pkg == "memlock" && !f.test() {
			n += bytes.Count(f.src, []byte("\n"))
		}
	}
	if n == 0 || n >= 380 {
		t.Errorf("memlock has %d lines: at most 379, to be read in one sitting", n)
	}
}

func TestFormat(t *testing.T) {
	for _, f := range files(t) {
		if out, err := format.Source(f.src); err != nil || !bytes.Equal(out, f.src) {
			t.Errorf("%s is not gofmt'd (%v)", f.path, err)
		}
	}
}

// An exported name is a promise, and a promise needs words.
func TestDocComments(t *testing.T) {
	documented := map[string]bool{}
	packages := map[string]string{}
	for _, f := range files(t) {
		if f.test() {
			continue
		}
		packages[f.pkg] = f.path
		if f.ast.Doc != nil {
			documented[f.pkg] = true
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
					t.Errorf("%s: %s has no doc comment", f.fset.Position(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					checkSpec(t, f, d, s)
				}
			}
		}
	}
	for pkg, path := range packages {
		if !documented[pkg] {
			t.Errorf("package %s (%s) has no doc comment about its purpose", pkg, path)
		}
	}
}

// exportedReceiver reports whether d is a function, or a method of an exported type. Methods of
// other types implement an interface, which is documented.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

func checkSpec(t *testing.T, f file, d *ast.GenDecl, s ast.Spec) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
			t.Errorf("%s: %s has no doc comment", f.fset.Position(s.Pos()), s.Name.Name)
		}
	case *ast.ValueSpec:
		for _, n := range s.Names {
			if n.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
				t.Errorf("%s: %s has no doc comment", f.fset.Position(n.Pos()), n.Name)
			}
		}
	}
}

// Unfinished work belongs in an issue, not in a remark in the code.
func TestNoLeftovers(t *testing.T) {
	words := []string{"TO" + "DO", "FIX" + "ME", "XX" + "X:"}
	for _, f := range files(t) {
		for _, w := range words {
			if bytes.Contains(f.src, []byte(w)) {
				t.Errorf("%s contains %s", f.path, w)
			}
		}
	}
}

// A program or a library that a build has left in the tree does not belong in the repository.
func TestNoBuildResults(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	list, err := cmd.Output()
	if err != nil {
		t.Skip("this is no checkout of git: ", err)
	}
	for path := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, path))
		switch {
		case errors.Is(err, os.ErrNotExist): // it is about to be deleted
		case err != nil:
			t.Error(err)
		case len(text) > 200_000:
			t.Errorf("%s has %d bytes; at most 200,000 are usual", path, len(text))
		case bytes.IndexByte(text, 0) >= 0 && filepath.Ext(path) != ".png" && !strings.Contains(path, "testdata/"):
			t.Errorf("%s is no text", path)
		}
	}
}
