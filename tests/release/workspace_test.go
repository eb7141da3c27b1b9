package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/holdfast-lock/holdfast/tests/internal/modproxy"
)

// The workspace has every module, and the folder of each version that one asks for. No module has a
// replacement of its own, and all ask for one version.
func TestWorkspace(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		t.Fatal(err)
	}
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	replaced := map[string]string{} // path@version to folder
	for _, r := range work.Replace {
		replaced[r.Old.String()] = path.Clean(r.New.Path)
	}
	files, err := modproxy.Tracked(root)
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	versions := map[string]bool{}
	for _, file := range files {
		if path.Base(file) != "go.mod" {
			continue
		}
		folders = append(folders, path.Dir(file))
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		mod, err := modfile.Parse(file, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(mod.Replace) > 0 {
			t.Errorf("%s: go install refuses a module with a replacement", file)
		}
		for _, r := range mod.Require {
			folder, ok := strings.CutPrefix(r.Mod.Path+"/", ours+"/")
			if !ok {
				continue
			}
			versions[r.Mod.Version] = true
			if folder = path.Clean(folder); replaced[r.Mod.String()] != folder {
				t.Errorf("%s: go.work does not replace %s by %s", file, r.Mod, folder)
			}
		}
	}
	var used []string
	for _, u := range work.Use {
		used = append(used, path.Clean(u.Path))
	}
	slices.Sort(used)
	slices.Sort(folders)
	if !slices.Equal(used, folders) || len(folders) < 5 {
		t.Errorf("go.work uses %q; the modules are in %q", used, folders)
	}
	if len(versions) != 1 {
		t.Errorf("the modules ask for each other in versions %v", versions)
	}
}
