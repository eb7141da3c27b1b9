package redislock_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/redislock"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestScriptsGolden compares the assembled text of every script with testdata/scripts: its own
// lines, and the order of files.
func TestScriptsGolden(t *testing.T) {
	files := redislock.ScriptFiles()
	for kind, all := range redislock.Scripts() {
		var got strings.Builder
		for _, name := range slices.Sorted(maps.Keys(all)) {
			text := all[name]
			for file, content := range files {
				text = strings.Replace(text, "\n"+content, "\n<"+file+".lua>\n", 1)
			}
			fmt.Fprintf(&got, "== %s\n%s", name, text)
		}
		golden := filepath.Join("testdata", "scripts", kind)
		if *update {
			if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != string(want) {
			t.Errorf("%s: the scripts differ from the golden file; run with -update and look at what changed:\n%s", kind,
				got.String())
		}
	}
}
