package cli

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/open"
)

// The times of the table tell entries apart that share a second, and have their zone.
func TestHistoryTimes(t *testing.T) {
	utc := time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
	for want, at := range map[string]time.Time{
		"2026-03-04 05:06:07.089Z":      utc,
		"2026-03-04 06:36:07.089+01:30": utc.In(time.FixedZone("", 5400)),
	} {
		if got := at.Format(historyTime); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
	url := "sqlite:" + filepath.Join(t.TempDir(), "locks.db")
	st, err := open.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	c, err := holdfast.New(t.Context(), st, &holdfast.Config{History: 10})
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Mutex("a").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Release()
	if err := c.Close(t.Context()); err != nil { // it waits for the entries
		t.Fatal(err)
	}
	code, out, stderr := try("--store", url, "history", "a")
	row := regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)  (granted|released) `)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != 3 || !row.MatchString(lines[1]) || !row.MatchString(lines[2]) {
		t.Errorf("exit code %d, %q, %s", code, lines, stderr)
	}
}
