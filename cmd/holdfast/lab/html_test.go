package lab_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/browser"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/history"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/lab"
)

// checkPage checks the page of all rows: it is complete, loads no external file, and looks well in a
// browser.
func checkPage(t *testing.T, all []*lab.Outcome) {
	t.Helper()
	var b bytes.Buffer
	if err := lab.WriteHTML(&b, all); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, o := range all {
		if !strings.Contains(page, `<section id="`+o.Row.ID+`"`) || !strings.Contains(page, `<a href="#`+o.Row.ID+`">`) {
			t.Errorf("%s is not on the page", o.Row.ID)
		}
	}
	for _, word := range []string{"http:", "https:", `src="`, "url(", "<script", "@import", "<link"} {
		if strings.Contains(page, word) {
			t.Errorf("the page contains %q", word)
		}
	}
	for _, word := range []string{"prefers-color-scheme: dark", "@media print", "both believe that they hold the lock"} {
		if !strings.Contains(page, word) {
			t.Errorf("the page lacks %q", word)
		}
	}
	// A browser needs long for the whole page. It is looked at where it has the least room.
	w := browser.Open(t)
	w.Check(write(t, all), "setpx-del", "all-rows", "phone")
	some := firsts(all)
	file := write(t, some)
	w.Check(file, "setpx-del", "lab")
	checkFilter(t, w, file, some)
	checkSaved(t, w, some)
	checkStores(t, w, some)
}

// firsts returns setpx-del, and the first two rows of each class.
func firsts(all []*lab.Outcome) (some []*lab.Outcome) {
	n := map[history.Class]int{}
	for _, o := range all {
		if n[o.Row.Class]++; n[o.Row.Class] <= 2 || o.Row.ID == "setpx-del" {
			some = append(some, o)
		}
	}
	return some
}

// write writes the page of some rows, and returns the file.
func write(t *testing.T, some []*lab.Outcome) string {
	t.Helper()
	var b bytes.Buffer
	if err := lab.WriteHTML(&b, some); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "lab.html")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// checkFilter selects a class with the keyboard: the page then shows its rows only.
func checkFilter(t *testing.T, w *browser.Browser, file string, all []*lab.Outcome) {
	t.Helper()
	shown := func() (ids []string) {
		t.Helper()
		w.Ask(`[...document.querySelectorAll("section.row")].filter(e => e.getClientRects().length).map(e => e.id)`, &ids)
		return ids
	}
	links := func() (n int) {
		t.Helper()
		w.Ask(`[...document.querySelectorAll("tr.row")].filter(e => e.getClientRects().length).length`, &n)
		return n
	}
	w.Show(file, "", browser.Views["light"])
	ids := shown()
	if len(ids) != len(all) || links() != len(all) || ids[0] != "setpx-del" {
		t.Errorf("at first the page shows %d rows of %d: %v", len(ids), len(all), ids)
	}
	var focused bool
	w.Ask(`document.querySelector("input[name=class]").focus(), true`, &focused)
	for _, class := range []string{"S1", "S2"} {
		w.Press("ArrowDown", 40)
		var want []string
		for _, o := range all {
			if string(o.Row.Class) == class {
				want = append(want, o.Row.ID)
			}
		}
		got := shown()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || links() != len(want) {
			t.Errorf("of class %s the page shows %v, and %d links; want %v", class, got, links(), want)
		}
	}
}

// checkStores gives a row of class S2 another store: the page can then show one store only, and says so if
// that leaves nothing of a class.
func checkStores(t *testing.T, w *browser.Browser, all []*lab.Outcome) {
	t.Helper()
	var some []*lab.Outcome
	for _, o := range all {
		changed := *o
		if changed.Row.ID == "setpx-lua" {
			changed.Row.Store = "zookeeper"
		} else if changed.Row.Class != "S1" {
			continue
		}
		some = append(some, &changed)
	}
	w.Show(write(t, some), "", browser.Views["phone"])
	for _, c := range []struct {
		click string
		rows  int
		none  bool
	}{{"store-0", len(some) - 1, false}, {"store-1", 1, false}, {"class-0", 0, true}, {"class-1", 1, false}} {
		var got struct {
			Rows int
			None bool
		}
		w.Ask(fmt.Sprintf(`(document.getElementById(%q).click(), {
			rows: [...document.querySelectorAll("section.row")].filter(e => e.getClientRects().length).length,
			none: document.querySelector(".none").getClientRects().length > 0,
		})`, c.click), &got)
		if got.Rows != c.rows || got.None != c.none {
			t.Errorf("after %s the page shows %d rows, and that there are none: %v; want %d, %v", c.click, got.Rows, got.None,
				c.rows, c.none)
		}
	}
}

// checkSaved saves the pictures of the first row in view.
func checkSaved(t *testing.T, w *browser.Browser, all []*lab.Outcome) {
	t.Helper()
	o := all[slices.IndexFunc(all, func(o *lab.Outcome) bool { return o.Row.ID == "setpx-del" })]
	var both bytes.Buffer
	if err := lab.WriteSVG(&both, o); err != nil {
		t.Fatal(err)
	}
	want := lab.Structure(t, both.Bytes())
	for _, scheme := range []string{"light", "dark"} {
		svg := w.Download(fmt.Sprintf("a[download=setpx-del-%s\\.svg]", scheme))
		if got := lab.Structure(t, svg); got != want {
			t.Errorf("the %s picture is\n%s\nwant\n%s", scheme, got, want)
		}
		if dark := bytes.Contains(svg, []byte(".paper { fill: #14181d")); bytes.Contains(svg, []byte("@media")) ||
			dark != (scheme == "dark") {
			t.Errorf("the %s picture has another colour scheme", scheme)
		}
	}
}
