package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/lab"
	"github.com/holdfast-lock/holdfast/driver"
)

// "lab run all" runs what can run, and says what it has left out. Rows that are named must run.
func TestLabLeftOut(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	rows := slices.DeleteFunc(lab.Rows(), func(r lab.Row) bool { return r.ID != "setpx-del" && r.ID != "lite-or-replace" })
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs}
	bad, err := a.labPlay(t.Context(), labFlags{named: []string{"all"}, out: "json"}, rows)
	var report labJSON
	if err != nil || len(bad) > 0 || json.Unmarshal(out.Bytes(), &report) != nil || len(report.Runs) != 1 ||
		report.Runs[0].ID != "lite-or-replace" || len(report.LeftOut) != 1 ||
		report.LeftOut[0].Store != "redis" || !slices.Equal(report.LeftOut[0].IDs, []string{"setpx-del"}) ||
		!strings.Contains(report.LeftOut[0].Reason, "apt-get install redis-server") {
		t.Errorf("%v: %v\n%s", bad, err, out.String())
	}
	if text := errs.String(); !strings.Contains(text, "left out: setpx-del: ") ||
		!strings.Contains(text, "apt-get install redis-server") {
		t.Errorf("%q", text)
	}
	out.Reset()
	redis := slices.DeleteFunc(slices.Clone(rows), func(r lab.Row) bool { return r.Store != lab.Redis })
	for name, c := range map[string]struct {
		named []string
		rows  []lab.Row
	}{
		"named":   {[]string{"all", "setpx-del"}, rows},
		"nothing": {[]string{"all"}, redis},
	} {
		_, err := a.labPlay(t.Context(), labFlags{named: c.named, out: "summary"}, c.rows)
		if !errors.Is(err, driver.ErrUnavailable) || out.Len() > 0 {
			t.Errorf("%s: %v: %s", name, err, out.String())
		}
	}
}
