// Package mutant has bugs on purpose: changes of holdfast's own code, of the kinds that lock
// libraries have had. `holdfast verify` must catch each in its class, which shows that a clean run
// of verify means something.
//
// A mutant is a few exact replacements of text. `go build -overlay` builds it from changed copies
// of files, embedded ones too; the source tree stays unchanged.
package mutant

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
)

// Store is a kind of server that a mutant runs on.
type Store string

// The stores.
const (
	SQLite    Store = "sqlite"
	Redis     Store = "redis"
	Quorum    Store = "quorum"
	MariaDB   Store = "mariadb"
	Postgres  Store = "postgres"
	ZooKeeper Store = "zookeeper"
)

// Mutant is a bug.
type Mutant struct {
	ID    string
	Store Store
	Bug   string          // what is wrong, in a sentence
	Class []history.Class // verify must find one of these
	Edits []Edit
	Run   Run
}

// Edit replaces a text of a file. The file must contain it exactly once.
type Edit struct {
	File     string // from the root of the repository
	Old, New string
}

// Run is how verify runs to show the bug. Its zero value fits most.
type Run struct {
	TTL    time.Duration // 0: 1 s. (ZooKeeper: by a session of 5/3 of it)
	For    time.Duration // 0: 8 s
	Faults string        // "": stop
	Mix    string        // "": all
	Slack  time.Duration // 0: 1 s
	Names  int           // 0: 2
	Loops  int           // 0: 6
	Pause  time.Duration // 0: none
}

// shortest is the length of most runs.
const shortest = 8 * time.Second

// Flags returns the flags of holdfast verify.
func (r Run) Flags() []string {
	flags := []string{"--seed", "1", "--processes", "3", "--ttl", cmp.Or(r.TTL, time.Second).String(), "--duration",
		cmp.Or(r.For, shortest).String(),
		"--faults", cmp.Or(r.Faults, "stop"), "--mix", cmp.Or(r.Mix, "all"), "--names", strconv.Itoa(cmp.Or(r.Names, 2)),
		"--loops", strconv.Itoa(cmp.Or(r.Loops, 6))}
	if r.Pause != 0 {
		flags = append(flags, "--pause", r.Pause.String())
	}
	if r.Slack != 0 {
		flags = append(flags, "--slack", r.Slack.String())
	}
	return flags
}

// All lists the mutants, store by store.
var All = slices.Concat(client, redis, quorum, sqlite, servers, zookeeper)

// Changed returns the changed texts of the files that m changes, by their paths from root, the
// repository.
func (m *Mutant) Changed(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.Edits {
		text, read := files[e.File]
		if !read {
			b, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.ID, err)
			}
			text = string(b)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return nil, fmt.Errorf("mutant %s: %s has this text %d times, not once: %q", m.ID, e.File, n, e.Old)
		}
		if e.New == e.Old {
			return nil, fmt.Errorf("mutant %s: nothing of %s is changed", m.ID, e.File)
		}
		files[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("mutant %s: nothing is changed", m.ID)
	}
	return files, nil
}

// Overlay writes the changed files and the file for `go build -overlay` into dir, and returns the
// latter's path.
func (m *Mutant) Overlay(root, dir string) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	files, err := m.Changed(root)
	if err != nil {
		return "", err
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for name, text := range files {
		copied := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		err = errors.Join(err, os.WriteFile(copied, []byte(text), 0o600))
		overlay.Replace[filepath.Join(root, name)] = copied
	}
	b, jerr := json.Marshal(overlay)
	path := filepath.Join(dir, "overlay.json")
	return path, errors.Join(err, jerr, os.WriteFile(path, b, 0o600))
}

func in(classes ...history.Class) []history.Class { return classes }
