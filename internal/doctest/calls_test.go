package doctest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const callsPage = "docs/calls.md"

// aroundCalls begins a package of tests, and aroundCall makes a test of a snippet. The clock is that
// of synctest: waits take no real time, and have exact lengths.
const (
	aroundCalls = `package calls

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memlock"
)

var _ = errors.Is

func run(t *testing.T, f func(ctx context.Context, c, other *holdfast.Client) error) {
	synctest.Test(t, func(t *testing.T) {
		store, clients := memlock.New(), [2]*holdfast.Client{}
		for i := range clients {
			c, err := holdfast.New(t.Context(), store, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(t.Context())
			clients[i] = c
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := f(ctx, clients[0], clients[1]); err != nil {
			t.Error(err)
		}
	})
}
`
	aroundCall = `
func Test%d(t *testing.T) {
	run(t, func(ctx context.Context, c, other *holdfast.Client) error {
//line %s:%d
%s
		return nil
	})
}
`
)

// Each section of the page has a snippet that runs and writes what the page shows. Each has a row in
// both tables.
func TestCalls(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, callsPage))
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile(`(?m)^### `).Split(string(text), -1)[1:]
	source, wants := aroundCalls, []string(nil)
	for i, s := range sections {
		title, _, _ := strings.Cut(s, "\n")
		blocks := fence.FindAllStringSubmatch(s, -1)
		if len(blocks) != 2 || blocks[0][1] != "go" || blocks[1][1] != "text" {
			t.Fatalf("%s: the section needs one Go block, and its output after it", title)
		}
		link := "](#" + anchor(title) + ") |"
		if n := strings.Count(string(text), link); n != 2 {
			t.Errorf("%s: %d rows link to it, want one of each table", title, n)
		}
		before, _, _ := strings.Cut(string(text), blocks[0][2])
		source += fmt.Sprintf(aroundCall, i, callsPage, 1+strings.Count(before, "\n"), blocks[0][2])
		wants = append(wants, blocks[1][2])
	}
	program := filepath.Join(t.TempDir(), "calls")
	const pkg = "internal/doctest/calls"
	// vet would need the folder of the package to exist.
	build(t, map[string]string{pkg + "/calls_test.go": source}, "test", "-c", "-vet=off", "-o", program, "./"+pkg)
	for i, want := range wants {
		title, _, _ := strings.Cut(sections[i], "\n")
		t.Run(title, func(t *testing.T) {
			cmd := exec.Command(program, fmt.Sprintf("-test.run=^Test%d$", i), "-test.timeout=1m")
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != want+"PASS\n" {
				t.Errorf("%v\n%s\nwant:\n%s", err, out, want)
			}
		})
	}
}
