package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/bench"
)

// bench prints JSON with all workloads, and writes a page beside it.
func TestBenchJSON(t *testing.T) {
	page := filepath.Join(t.TempDir(), "bench.html")
	code, stdout, stderr := try("bench", "--store", "memory:", "--ttl", "20s", "--duration", "50ms", "--count", "2",
		"--json", "--html", page)
	var got benchJSON
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	if got.Schema != schema || !got.Complete || got.Store != "memory:" || got.TTLMS != 20_000 || got.DurationMS != 50 ||
		got.Count != 2 || got.CPUs < 1 || len(got.Notes) != 1 || len(got.Workloads) != len(bench.Names()) {
		t.Errorf("%+v", got)
	}
	for i, name := range bench.Names() {
		w := got.Workloads[i]
		var n uint64
		for _, b := range w.Distribution {
			n += b.N
			if b.From >= b.To {
				t.Errorf("%s: %+v", name, b)
			}
		}
		if w.Name != name || w.Title == "" || w.Median == nil || len(w.Rounds) != 2 || w.Errors != 0 || w.Error != "" ||
			n == 0 {
			t.Fatalf("%+v", w)
		}
		for _, r := range append(w.Rounds, *w.Median) {
			if r.Operations < 1 || r.PerSecond <= 0 || r.P50 <= 0 || r.P90 < r.P50 || r.P99 < r.P90 || r.Max < r.P99 ||
				r.TimesP50 <= 0 || r.TookMS < 50 || (r.Jain != nil) != w.HandOver || (r.WaitMax != nil) != w.HandOver {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if said := "holdfast: round 2 of 2: " + name + ": "; !strings.Contains(stderr, said) {
			t.Errorf("%q is not in %s", said, stderr)
		}
	}
	if text, err := os.ReadFile(page); err != nil || !strings.HasSuffix(string(text), "</html>\n") {
		t.Errorf("%v: %s", err, text)
	}
}

// The table has the workloads that were chosen and the floor, and only on request histograms.
func TestBenchTable(t *testing.T) {
	for _, histogram := range []bool{false, true} {
		args := []string{"bench", "--store", "memory:", "--duration", "20ms", "--scenario", "pair|one/2"}
		if histogram {
			args = append(args, "--histogram")
		}
		code, stdout, stderr := try(args...)
		rows := regexp.MustCompile(`(?m)^(exchange|pair|one/2) +[0-9,]+ +[0-9.]+ .s +.* 0$`).FindAllString(stdout, -1)
		if code != 0 || len(rows) != 3 || strings.Contains(stdout, "names/64") || strings.Contains(stdout, "█") != histogram {
			t.Errorf("exit code %d: %s%s", code, stdout, stderr)
		}
	}
}

// A page that cannot be written fails before anything is measured.
func TestBenchPageFails(t *testing.T) {
	code, stdout, stderr := try("bench", "--store", "memory:", "--html", filepath.Join(t.TempDir(), "none", "b.html"))
	if code != exitUsage || stdout != "" || strings.Contains(stderr, "exchange") || !strings.Contains(stderr, "--html") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

// A store that cannot be reached has no figures.
func TestBenchUnavailable(t *testing.T) {
	code, stdout, stderr := try("bench", "--store", "redis://127.0.0.1:1")
	if code != exitUnavailable || stdout != "" || !strings.Contains(stderr, "127.0.0.1:1") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}
